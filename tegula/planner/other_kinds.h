// Accelerators that do not execute as the cost model says (kernels one after another, weights read
// from a memory of their own for each): how they do, what is public of them, and their own price
// (other_price.h), or which number was not found that a price would need. Naming one of the latter
// is refused with that.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tegula/planner/other_price.h"

namespace tegula::planner {

struct OtherKind {
  std::string_view name;
  std::string_view executes;  // how
  std::string_view known;     // public numbers; empty: none that we found
  std::string_view missing;   // not found, and without it there is no price; empty: priced
  Result<OtherPrice> (*price)(const ModelSpec&, const ParamCount&, int64_t n,
                              const OtherJob&) = nullptr;
  PublishedFigure (*published)() = nullptr;
};

std::span<const OtherKind> other_kinds();
// Without regard to case and dashes; null: there is none of that name.
const OtherKind* find_other_kind(std::string_view name);
// In a cluster of the usual kind; one that is priced, is so by itself alone.
std::string why_not_priced(const OtherKind& kind);
// "16xcerebras-wse3" -> the kind and 16; null: no kind of that name, or one without a price.
struct OtherCluster {
  const OtherKind* kind = nullptr;
  int64_t n = 1;
};
OtherCluster find_other_cluster(std::string_view text);
// The published figure beside the model's, for people.
std::string to_text(const PublishedFigure& figure);

}  // namespace tegula::planner
