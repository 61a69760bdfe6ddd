// The memory that dot_quantised_rows takes besides its operands.
#pragma once

#include <span>

#include "tegula/base/algorithm.h"
#include "tegula/kernels/kernel.h"

namespace tegula::kernel {

inline constexpr int kQuantisedRows = 4;  // of x at a time

// Sums of every shard of k but the first, whose are made in the result.
inline int64_t quantised_bytes(const Attrs& attrs, std::span<const TensorRef> in) {
  const int64_t rows = std::min<int64_t>(in[0].shape[0], kQuantisedRows);
  return 4 * (attrs.get_or<int64_t>("k_shards", 1) - 1) * rows * in[1].shape[1];
}

}  // namespace tegula::kernel
