#include "tegula/base/sizes.h"

#include "tegula/base/algorithm.h"
#include "tegula/base/saturating.h"

namespace tegula {

Status check_sizes(std::string_view what, std::span<const Dim> sizes) {
  const auto all = [&] { return std::vector<Dim>(sizes.begin(), sizes.end()); };
  int64_t elements = 1;
  for (const Dim& d : sizes) {
    if (d == Dim(kNoSize))
      return invalid_argument(cat(what, ": a shape of more than ", kMaxRank,
                                  " dims, or with a dim inserted or erased where none is"));
    if (d.bound() < 0)
      return invalid_argument(cat(what, ": a size of ", all(), " is ", d.bound(), ", below 0"));
    elements = saturating_mul(elements, std::max<int64_t>(d.bound(), 1));
  }
  if (elements > kMaxElements)
    return unsupported(
        cat(what, ": ", all(), " has more than ", kMaxElements, " elements: make it smaller"));
  return {};
}

}  // namespace tegula
