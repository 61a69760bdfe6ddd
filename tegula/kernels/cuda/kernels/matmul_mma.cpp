// Products on the tensor cores of sm_80 and newer: mma.sync and cp.async.
#include "tegula/kernels/cuda/describe/dot_query.h"

namespace tegula::cuda {

namespace {
Status check(const KernelQuery& q) {
  TEGULA_TRY(check_device(q, 80));
  const DType in = q.in[0].dtype;
  if (!is_narrow_float(in)) return unsupported("dot: of bf16 or f16");
  const DotCall d = TEGULA_TRY(parse_dot(q, in));
  if (d.shape.a_mn_major) return unsupported("dot: the first factor must have stride 1 over k");
  return check_matmul(matmul_call(d, 0, nullptr));
}
}  // namespace

extern constinit const KernelDef matmul_mma{
    .name = "matmul_mma",
    .op = "dot",
    .device = DeviceKind::kCuda,
    .order = "sm80_mma",
    .doc = "mma.sync and cp.async, f32 sums",
    .priority = 50,
    .supports = passes<check>,
    .check = check,
};

}  // namespace tegula::cuda
