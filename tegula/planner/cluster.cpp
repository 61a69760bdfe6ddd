#include "tegula/planner/cluster.h"

#include "tegula/base/algorithm.h"
#include "tegula/base/amounts.h"

namespace tegula::planner {

Result<ClusterSpec> parse_cluster(std::string_view text, std::span<const Accelerator> own) {
  ClusterSpec c;
  std::string_view name = text;
  if (!text.empty() && text.front() >= '0' && text.front() <= '9') {
    const size_t x = text.find_first_of("xX");
    const std::string_view digits = text.substr(0, std::min(x, text.size()));
    const auto n = read_count(digits, 1, kMostDevices);
    if (x == text.npos || !n.ok())
      return invalid_argument(cat("'", text, "' is no cluster: write 64xH100, a number from 1 to ",
                                  kMostDevices, " and an accelerator"));
    c.n_devices = *n, name = text.substr(x + 1);
  } else if (text.starts_with('-')) {
    return invalid_argument(cat("'", text, "' is no cluster: write 64xH100"));
  }
  c.device = TEGULA_TRY(find_accelerator(name, own));
  return c;
}

Link link_of(const ClusterSpec& c, const RankGroup& g) {
  const Accelerator& a = c.device;
  if (is_in_node(c, g)) return a.inside;
  const int64_t in_node = std::max<int64_t>(1, a.devices_per_node / std::max<int64_t>(1, g.stride));
  Link link = a.between;
  link.bytes_per_s *= static_cast<double>(std::min(in_node, g.size));
  link.bytes_per_s = std::min(link.bytes_per_s, a.inside.bytes_per_s);
  return link;
}

Link own_link(const ClusterSpec& c, const RankGroup& g) {
  return is_in_node(c, g) ? c.device.inside : c.device.between;
}

}  // namespace tegula::planner
