// Programs of a layer that others take in: a norm of a sum, a gate.
#pragma once

#include "tests/tile/harness.h"

namespace tegula::tile {

inline constexpr DType F = DType::kF32, B = DType::kBF16;

inline TensorRef rows_of(DType t, int64_t rows, int64_t n) {
  TensorRef r;
  r.dtype = t, r.rank = 2;
  r.shape[0] = rows, r.shape[1] = n, r.stride[0] = n, r.stride[1] = 1;
  return r;
}

inline Program norm_of_sum() {
  Builder b(2, 1);
  const Reg x = b.cast(b.load(b.input(B)), F) + b.cast(b.load(b.input(B)), F);
  const Reg g = b.cast(b.load(b.input(B)), F);
  const Reg rstd = rsqrt(b.reduce(Op::kReduceSum, x * x) * 1e-3 + 1e-5);
  b.store(b.output(B), b.cast(x, B));
  b.store(b.output(B), b.cast(x * rstd * g, B));
  return b.finish().value();
}

inline Program gate() {
  Builder b(2);
  const Reg x = b.cast(b.load(b.input(B)), F), u = b.cast(b.load(b.input(B)), F);
  b.store(b.output(B), b.cast(b.unary(Op::kSilu, x) * u, B));
  return b.finish().value();
}

}  // namespace tegula::tile
