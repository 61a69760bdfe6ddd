// Any strides and types, a chain of fma per output or shard.
#include "tegula/kernels/cpu/common/contraction.h"
#include "tegula/kernels/cuda/describe/check.h"

namespace tegula::cuda {

namespace {
Status check(const KernelQuery& q) {
  const auto c = TEGULA_TRY(kernel::parse_contraction(*q.attrs, q.in, q.out));
  if (c.has_epilogue()) return unsupported("dot: nothing may follow the sum");
  if (q.in[0].dtype != q.in[1].dtype || q.in[0].dtype == DType::kF8E4M3 ||
      q.in[0].dtype == DType::kBool)
    return unsupported(
        cat("dot: ", dtype_name(q.in[0].dtype), " times ", dtype_name(q.in[1].dtype)));
  if (c.accumulates && q.in[2].dtype != q.out[0].dtype)
    return unsupported("dot: the start has another type than the result");
  return {};
}
}  // namespace

extern constinit const KernelDef dot_any{
    .name = "dot_any",
    .op = "dot",
    .device = DeviceKind::kCuda,
    .order = "fma_chain",
    .doc = "any strides and types, a chain of fma per output or shard",
    .supports = passes<check>,
    .check = check,
};

}  // namespace tegula::cuda
