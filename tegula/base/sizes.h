// The bounds that hold for every tensor: within them sizes, byte offsets and the FLOPs of a
// contraction fit into 64 bits.
#pragma once

#include "tegula/base/shape.h"

namespace tegula {

// The most elements of a tensor, an empty dim counted as one: strides are products of all dims.
inline constexpr int64_t kMaxElements = int64_t{1} << 40;

// Sizes are at least 0 at the bound, and their product is at most kMaxElements. The error begins
// with `what`.
Status check_sizes(std::string_view what, std::span<const Dim> sizes);
inline Status check_sizes(std::string_view what, const Shape& s) {
  return check_sizes(what, std::span(s.begin(), s.end()));
}

}  // namespace tegula
