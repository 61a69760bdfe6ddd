// Products on Hopper's tensor cores: tensor copies and wgmma, warp groups that load and compute.
#include "tegula/kernels/cuda/describe/dot_query.h"

namespace tegula::cuda {

namespace {
Status check(const KernelQuery& q) {
  TEGULA_TRY(check_device(q, 90, 90));
  const DType in = q.in[0].dtype, out = q.out[0].dtype;
  if (!is_narrow_float(in) || (out != in && out != DType::kF32))
    return unsupported("dot: of bf16 or f16, into the same or f32");
  const DotCall d = TEGULA_TRY(parse_dot(q, in, out));
  return check_matmul(matmul_call(d, 0, nullptr));
}
// The sums of each part of k.
int64_t workspace_bytes(const KernelQuery& q) {
  const auto d = parse_dot(q, q.in[0].dtype, q.out[0].dtype);
  if (!d.ok()) return 0;
  const int splits = choose_splits(d->shape, q.target->multiprocessors);
  return splits == 1 ? 0 : 4 * splits * d->shape.m * d->shape.n;
}
}  // namespace

extern constinit const KernelDef matmul_sm90{
    .name = "matmul_sm90",
    .op = "dot",
    .device = DeviceKind::kCuda,
    .order = "sm90_wgmma",
    .doc = "wgmma and tensor copies, f32 sums",
    .priority = 100,
    .supports = passes<check>,
    .check = check,
    .workspace_bytes = workspace_bytes,
};

}  // namespace tegula::cuda
