// Kernels over rows (the last dim) of any strides: what their descriptors share.
#pragma once

#include "tegula/base/algorithm.h"
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
  return 4 * round_up(row_length(q.in[0]), 16) * (kRowBuffers * q.target->n_threads + 2);
}

// A norm's gradient sums dw (and db) over shards of rows: enough of them for many threads, few
// enough for their sums to be small beside the rows.
struct NormShards {
  static constexpr int64_t kMost = 64, kFewestRows = 16;
  int64_t rows, count;    // of a shard; how many
  int64_t width, floats;  // of a row of sums, and of a shard's rows of sums
  int64_t room;           // for shards: never less for more rows
  NormShards(int64_t n_rows, int64_t length, bool bias)
      : rows(std::max(ceil_div(n_rows, kMost), kFewestRows)),
        count(std::max<int64_t>(ceil_div(n_rows, rows), 1)),
        width(round_up(length, 16)),
        floats((bias ? 2 : 1) * width),
        room(std::clamp<int64_t>(ceil_div(n_rows, kFewestRows), 1, kMost)) {}
  int64_t workspace_bytes(int64_t n_threads) const {
    return 4 * (width * (kRowBuffers * n_threads + 2) + room * floats);
  }
};

inline int64_t norm_bwd_workspace_bytes(const KernelQuery& q) {
  const bool bias = q.attrs->flag("bias");
  return NormShards(row_count(q.in[0]), row_length(q.in[0]), bias)
      .workspace_bytes(q.target->n_threads);
}

}  // namespace tegula::kernel
