// Attention on Hopper: tensor copies, wgmma, one warp group that loads and two or three that
// compute.
#include "tegula/kernels/cuda/plugin/attention_call.h"

namespace tegula::cuda {

namespace {
bool supports(const KernelQuery& q) {
  const auto c = kernel::parse_attention(*q.attrs, q.in, false, true);
  if (!c.ok() || device_capability() != 90 || !is_whole(*c)) return false;
  return is_readable(*c, false, {&q.in[0], &q.in[1], &q.in[2]}) && is_copyable(q.out[0]) &&
         q.out[0].dtype == result_type(c->q->dtype) && q.out[1].is_contiguous() &&
         check_attention(shape_of(*c), c->scale).ok() && choose_attention(shape_of(*c)).ok();
}

int64_t workspace_bytes(const KernelQuery& q) {
  const auto c = kernel::parse_attention(*q.attrs, q.in, false, true);
  return c.ok() ? attention_workspace_bytes(shape_of(*c)) : 0;
}

Status launch(const DeviceCall& call) {
  const auto c = TEGULA_TRY(kernel::parse_attention(*call.attrs, call.in, false, true));
  const AttentionVariant v = TEGULA_TRY(choose_attention(shape_of(c)));
  const AttentionKernel* k = TEGULA_TRY(loaded<AttentionKernel>(
      v.name(), "attention_sm90.cu", v.defines(),
      [&](const std::string& cubin) { return AttentionKernel::load(v, cubin); }));
  AttentionCall a = call_of(c, call);
  a.counter = static_cast<unsigned*>(TEGULA_TRY(zeroed_memory(sizeof(unsigned))));
  a.q_descale = descale_of(c, 0), a.k_descale = descale_of(c, 1), a.v_descale = descale_of(c, 2);
  return k->launch(a);
}
}  // namespace

extern constinit const KernelDef attention_sm90{
    .name = "attention_sm90",
    .op = "attention",
    .device = DeviceKind::kCuda,
    .order = "sm90_online",
    .doc = "wgmma and tensor copies, warp groups that load and compute",
    .priority = 100,
    .supports = supports,
    .workspace_bytes = workspace_bytes,
    .launch = launch_into_queue<launch>,
};

}  // namespace tegula::cuda
