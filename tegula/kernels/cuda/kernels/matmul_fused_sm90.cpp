// Products on Hopper's tensor cores whose tiles go through a tile program, compiled for each
// program and layout.
#include "tegula/kernels/cuda/describe/dot_fused_query.h"

namespace tegula::cuda {

namespace {
Status check(const KernelQuery& q) {
  TEGULA_TRY(check_device(q, 90, 90));
  TEGULA_TRY(parse_dot_fused(q));
  return {};
}
}  // namespace

extern constinit const KernelDef matmul_fused_sm90{
    .name = "matmul_fused_sm90",
    .op = "dot_fused",
    .device = DeviceKind::kCuda,
    .order = "sm90_wgmma",
    .doc = "wgmma and tensor copies, f32 sums, rounded; then a body while the next tile is made",
    .supports = passes<check>,
    .check = check,
};

}  // namespace tegula::cuda
