// A `dot` call as matrix products of one layout each: c[m, n] = a[m, k] b[k, n], for every index of
// the batch.
#pragma once

#include "tegula/kernels/cpu/common/contraction.h"
#include "tegula/kernels/cuda/describe/check.h"
#include "tegula/kernels/cuda/matmul.h"

namespace tegula::cuda {

struct DotCall {
  kernel::Contraction c;  // so turned that c has stride 1 over n
  MatmulShape shape;
  int64_t lda = 0, ldb = 0, ldc = 0;                           // between rows as they lie
  const TensorRef *a = nullptr, *b = nullptr, *out = nullptr;  // out null: c lies nowhere

  MatmulOperand operand(const TensorRef& t, kernel::Operand which, int64_t batch,
                        int64_t stride) const {
    return {t.as<char>() + c.batch.offset(batch, which) * size_bytes(t.dtype), stride};
  }
};

// Unsupported: anything but a product of two matrices without epilogue, of `dtype`, the result of
// `out`; and more than `most_shards` shards of k.
Result<DotCall> parse_dot(const KernelQuery& q, DType dtype, DType out, int64_t most_shards = 1);
inline Result<DotCall> parse_dot(const KernelQuery& q, DType dtype) {
  return parse_dot(q, dtype, dtype);
}

// As parse_dot, of a launch.
inline Result<DotCall> parse_dot(const KernelCall& call, DType dtype, DType out,
                                 int64_t most_shards = 1) {
  return parse_dot(
      KernelQuery{.attrs = call.attrs, .in = call.in, .out = call.out, .target = call.target},
      dtype, out, most_shards);
}
inline Result<DotCall> parse_dot(const KernelCall& call, DType dtype) {
  return parse_dot(call, dtype, dtype);
}

// The products of the tensor cores: what matmul.h takes, for every index of the batch.
MatmulCall matmul_call(const DotCall& dot, int64_t batch, const Stream& stream);

// Whether a rung of f32 can.
bool rung_supports(const KernelQuery& q);

}  // namespace tegula::cuda
