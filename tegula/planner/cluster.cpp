#include "tegula/planner/cluster.h"

#include "tegula/base/algorithm.h"
#include "tegula/base/amounts.h"
#include "tegula/planner/nearest.h"
#include "tegula/planner/other_kinds.h"

namespace tegula::planner {

Result<Accelerator> find_accelerator(std::string_view name, std::span<const Accelerator> own) {
  const Accelerator* preset = find_preset(name);
  for (const Accelerator& a : own)
    if (is_same_name(a.name, name) || (preset && preset->name == a.name)) return a;
  if (preset) return *preset;
  if (const OtherKind* other = find_other_kind(name)) return unsupported(why_not_priced(*other));
  std::vector<std::string_view> names;
  for (const std::span<const Accelerator> list : {own, accelerator_presets()})
    for (const Accelerator& a : list) names.push_back(a.name);
  return invalid_argument(
      cat("there is no accelerator '", name, "': the nearest are ", nearest_names(name, names)));
}

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

}  // namespace tegula::planner
