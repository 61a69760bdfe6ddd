// From which extents of its symbols on a function means something.
//
// Builders check types at the symbols' bounds. At a smaller extent a dim may come out below 0 (n -
// 3 of n = 2), a slice may end behind its operand, a window may no longer fit.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tegula/ir/module.h"

namespace tegula {

// A symbol's bound from below: the least extent, and what breaks below it ("" if 0 is the least).
struct LeastExtent {
  int64_t extent = 0;
  std::string why;
};

// One per symbol of the module, the others being at their bounds: the least extent at which every
// type of `f` and of the functions that it holds as regions has dims of at least 0 and every op
// takes its operands. Ops are taken to want more elements, never fewer. Error: a bound is too small
// itself.
Result<std::vector<LeastExtent>> least_extents(const Module& module, const Function& f);

// Error (invalid_argument) unless every extent is within [least, bound]: names the symbol, and says
// why. `least` may be empty: all 0.
Status check_extents(std::span<const Symbol> symbols, std::span<const LeastExtent> least,
                     std::span<const int64_t> extents);

}  // namespace tegula
