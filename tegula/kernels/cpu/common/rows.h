// Kernels over rows (the last dim) of any strides: what their descriptors share.
#pragma once

#include "tegula/kernels/cpu/common/dot_plan.h"

namespace tegula::kernel {

inline constexpr int kRowBuffers = 5;  // f32 rows of scratch per thread

inline int64_t row_length(const TensorRef& t) { return t.shape[t.rank - 1]; }
inline int64_t row_count(const TensorRef& t) {
  int64_t n = 1;
  for (int d = 0; d + 1 < t.rank; ++d) n *= t.shape[d];
  return n;
}

// f32, bf16 or f16 throughout.
inline bool rows_supported(const KernelQuery& q) {
  const auto ok = [](const TensorRef& t) {
    return t.dtype == DType::kF32 || t.dtype == DType::kBF16 || t.dtype == DType::kF16;
  };
  for (const TensorRef& t : q.in)
    if (!ok(t)) return false;
  for (const TensorRef& t : q.out)
    if (!ok(t)) return false;
  return q.in[0].rank >= 1;
}

// Scratch rows of each thread, and two rows that all share.
inline int64_t rows_workspace_bytes(const KernelQuery& q) {
  return 4 * round_up(row_length(q.in[0]), 16) * (kRowBuffers * q.n_threads + 2);
}

}  // namespace tegula::kernel
