#include "tegula/cost/cluster.h"

#include "tegula/base/algorithm.h"

namespace tegula {

Link link_of(const ClusterSpec& c, const RankSpan& g) {
  const Accelerator& a = c.device;
  if (is_in_node(c, g)) return a.inside;
  const int64_t in_node = std::max<int64_t>(1, a.devices_per_node / std::max<int64_t>(1, g.stride));
  Link link = a.between;
  link.bytes_per_s *= static_cast<double>(std::min(in_node, g.size));
  link.bytes_per_s = std::min(link.bytes_per_s, a.inside.bytes_per_s);
  return link;
}

Link own_link(const ClusterSpec& c, const RankSpan& g) {
  return is_in_node(c, g) ? c.device.inside : c.device.between;
}

}  // namespace tegula
