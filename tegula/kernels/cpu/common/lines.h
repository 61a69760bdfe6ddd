// A walk along the lines of one dim: neighbouring lines together, so that their chains overlap, and
// threads over groups of them.
#pragma once

#include <span>

#include "tegula/base/algorithm.h"
#include "tegula/base/half.h"
#include "tegula/kernels/kernel.h"

namespace tegula::kernel {

inline constexpr int64_t kLinesAtOnce = 64;

// Where element 0 of a group's lines is in a tensor, and how far the next element of a line.
struct LineOffsets {
  int64_t at[kLinesAtOnce] = {};
  int64_t step = 0;
};

// Calls fn(n_lines, offsets of each tensor) for every group. All tensors have one shape.
template <size_t N, class F>
void for_each_lines(const KernelCall& call, const TensorRef* const (&tensors)[N], F&& fn) {
  const TensorRef& shape = *tensors[0];
  const auto dim = static_cast<int>(call.attrs->i("dim"));
  const bool reverse = call.attrs->flag("reverse");
  const int64_t n = shape.shape[dim];
  if (shape.numel() == 0) return;
  const int64_t lines = shape.numel() / n, at_once = call.pool->grain(kLinesAtOnce);
  const int64_t groups = (lines + at_once - 1) / at_once;
  call.pool->parallel_for(groups, [&](int64_t group, int) {
    const int64_t first = group * at_once, count = std::min(at_once, lines - first);
    LineOffsets o[N];
    for (size_t t = 0; t < N; ++t) {
      const TensorRef& x = *tensors[t];
      o[t].step = reverse ? -x.stride[dim] : x.stride[dim];
      for (int64_t j = 0; j < count; ++j) {
        int64_t at = reverse ? (n - 1) * x.stride[dim] : 0, rest = first + j;
        for (int d = x.rank - 1; d >= 0; --d) {
          if (d == dim) continue;
          at += rest % x.shape[d] * x.stride[d], rest /= x.shape[d];
        }
        o[t].at[j] = at;
      }
    }
    fn(count, n, std::span<const LineOffsets>(o));
  });
}

// Calls fn(element type, type of a running value) for the dtypes of the cumulative kernels: sums of
// bf16 and f16 run in f32, those of i32 in 64 bits, of which the low ones are kept.
template <class F>
void by_line_type(DType t, F&& fn) {
  switch (t) {
    case DType::kF64:
      return fn(double{}, double{});
    case DType::kBF16:
      return fn(bf16{}, float{});
    case DType::kF16:
      return fn(f16{}, float{});
    case DType::kI64:
      return fn(int64_t{}, uint64_t{});
    case DType::kI32:
      return fn(int32_t{}, uint32_t{});
    default:
      return fn(float{}, float{});
  }
}
inline bool has_line_type(DType t) {
  return t == DType::kF32 || t == DType::kF64 || t == DType::kBF16 || t == DType::kF16 ||
         t == DType::kI64 || t == DType::kI32;
}

}  // namespace tegula::kernel
