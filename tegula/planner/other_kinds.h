// Accelerators that do not execute as the cost model says (kernels one after another, weights read
// from a memory of their own for each): how they do, what is public of them, and which number was
// not found that a price would need. Naming one is refused with that.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tegula::planner {

struct OtherKind {
  std::string_view name;
  std::string_view executes;  // how
  std::string_view known;     // public numbers; empty: none that we found
  std::string_view missing;   // not found, and without it there is no price
};

std::span<const OtherKind> other_kinds();
// Without regard to case and dashes; null: there is none of that name.
const OtherKind* find_other_kind(std::string_view name);
std::string why_not_priced(const OtherKind& kind);

}  // namespace tegula::planner
