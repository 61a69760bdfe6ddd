// The iteration space of a `fused` node and how the values of its body lie in it.
//
// The space has no dims of extent 1; its last n_inner dims form a row. Every value of the body is
// full (the space's dims, in order), row (the outer ones), or a source that is broadcast into it;
// dims of extent 1 may stand anywhere. A result may also be a sum over the outer dims, a column:
// nothing in the body reads it. So views inside a body only rename dims.
#pragma once

#include <array>
#include <vector>

#include "tegula/ir/opdef.h"

namespace tegula {

struct FusedSpace {
  static constexpr int8_t kOne = -1;    // extent 1, or one element for the whole space
  static constexpr int8_t kUnset = -2;  // of a value that nothing reads

  Shape shape;
  int n_inner = 0;
  bool has_reduction = false;  // of rows
  bool has_columns = false;    // sums over all rows, which are results
  // Per value of the body and dim of it: the space's dim.
  std::vector<std::array<int8_t, kMaxRank>> dims;

  int rank() const { return shape.rank(); }
};

// From attributes "shape" and "inner". Errors name the node of the body that does not fit.
Result<FusedSpace> fused_space(const Function& body, const Attrs& attrs);

// A shape without its dims of extent 1.
Shape squeezed(const Shape& s);
// Does a reshape only add or remove dims of extent 1?
bool only_ones_differ(const Shape& a, const Shape& b);

}  // namespace tegula
