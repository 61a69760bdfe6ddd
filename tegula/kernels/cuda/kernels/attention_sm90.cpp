// Attention on Hopper: tensor copies, wgmma, one warp group that loads and two or three that
// compute.
#include "tegula/kernels/cuda/describe/attention_padded.h"

namespace tegula::cuda {

namespace {
Status check(const KernelQuery& q) {
  TEGULA_TRY(check_device(q, 90, 90));
  const auto c = TEGULA_TRY(kernel::parse_attention(*q.attrs, q.in, false, {.e4m3 = true}));
  TEGULA_TRY(check_whole(c));
  TEGULA_TRY(check_readable(c, false, {&q.in[0], &q.in[1], &q.in[2]}));
  TEGULA_TRY(check_results(c, q.out[0], q.out[1]));
  TEGULA_TRY(check_attention(shape_of(c), c.scale));
  TEGULA_TRY(choose_attention(shape_of(c)));
  return {};
}

int64_t workspace_bytes(const KernelQuery& q) {
  const auto c = kernel::parse_attention(*q.attrs, q.in, false, {.e4m3 = true});
  return c.ok() ? attention_workspace_bytes(shape_of(*c)) : 0;
}
}  // namespace

extern constinit const KernelDef attention_sm90{
    .name = "attention_sm90",
    .op = "attention",
    .device = DeviceKind::kCuda,
    .order = "sm90_online",
    .doc = "wgmma and tensor copies, warp groups that load and compute",
    .priority = 100,
    .supports = passes<check_padded<kForwardOperands, check>>,
    .check = check_padded<kForwardOperands, check>,
    .workspace_bytes = padded_workspace_bytes<kForwardOperands, workspace_bytes>,
};

}  // namespace tegula::cuda
