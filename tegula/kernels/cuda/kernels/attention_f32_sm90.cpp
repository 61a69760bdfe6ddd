// Attention of f32 tensors on Hopper: factors in three parts, wgmma of bf16.
#include "tegula/kernels/cuda/attention_f32.h"
#include "tegula/kernels/cuda/describe/attention_query.h"

namespace tegula::cuda {

namespace {
Status check(const KernelQuery& q) {
  TEGULA_TRY(check_device(q, 90, 90));
  const auto c = TEGULA_TRY(kernel::parse_attention(*q.attrs, q.in, false));
  TEGULA_TRY(check_whole(c));
  TEGULA_TRY(check_readable(c, true, {&q.in[0], &q.in[1], &q.in[2], &q.out[0]}));
  TEGULA_TRY(check_results(c, q.out[0], q.out[1]));
  return check_attention_f32(shape_of(c), c.scale);
}

int64_t workspace_bytes(const KernelQuery& q) {
  const auto c = kernel::parse_attention(*q.attrs, q.in, false);
  if (!c.ok()) return 0;
  const auto v = choose_attention_f32(shape_of(*c));
  return v.ok() ? attention_f32_workspace_bytes(*v, shape_of(*c)) : 0;
}
}  // namespace

extern constinit const KernelDef attention_f32_sm90{
    .name = "attention_f32_sm90",
    .op = "attention",
    .device = DeviceKind::kCuda,
    .order = "sm90_f32_online",
    .doc = "f32 as three bf16 parts, six products by wgmma, tiles summed in f32",
    .priority = 100,
    .supports = passes<check>,
    .check = check,
    .workspace_bytes = workspace_bytes,
};

}  // namespace tegula::cuda
