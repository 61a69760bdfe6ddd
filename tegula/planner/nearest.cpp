#include "tegula/planner/nearest.h"

#include <vector>

#include "tegula/base/algorithm.h"
#include "tegula/base/text.h"

namespace tegula::planner {

std::string nearest_names(std::string_view name, std::span<const std::string_view> names) {
  name = name.substr(0, 64);  // nobody's name is longer, and the cost is a product
  std::vector<std::pair<size_t, std::string_view>> ranked;
  for (const std::string_view n : names) ranked.emplace_back(edit_distance(name, n), n);
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  ranked.resize(std::min<size_t>(3, ranked.size()));
  return joined(ranked, ", ", [](const auto& r) { return r.second; });
}

}  // namespace tegula::planner
