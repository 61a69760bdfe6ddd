// Attention by mma.sync: what GPUs before and beside Hopper get, and the third rung.
#include "tegula/kernels/cuda/attention_mma.h"

#include "tegula/kernels/cuda/plugin/attention_call.h"

namespace tegula::cuda {

namespace {
bool supports(const KernelQuery& q) {
  const auto c = kernel::parse_attention(*q.attrs, q.in, false);
  if (!c.ok() || device_capability() < 80 || !is_whole(*c)) return false;
  if (!is_readable(*c, false, {&q.in[0], &q.in[1], &q.in[2]}) || !is_copyable(q.out[0]) ||
      q.out[0].dtype != c->q->dtype || !q.out[1].is_contiguous() ||
      !check_attention_mma(shape_of(*c), c->scale).ok())
    return false;
  const auto v = choose_attention_mma(shape_of(*c));
  return v.ok() && v->smem_bytes() <= max_smem_bytes(device_capability());
}

Status launch(const DeviceCall& call) {
  const auto c = TEGULA_TRY(kernel::parse_attention(*call.attrs, call.in, false));
  const AttentionMmaVariant v = TEGULA_TRY(choose_attention_mma(shape_of(c)));
  const AttentionMmaKernel* k = TEGULA_TRY(loaded<AttentionMmaKernel>(
      v.name(), "attention_mma.cu", v.defines(),
      [&](const std::string& cubin) { return AttentionMmaKernel::load(v, cubin); }));
  return k->launch(call_of(c, call));
}
}  // namespace

extern constinit const KernelDef attention_mma{
    .name = "attention_mma",
    .op = "attention",
    .device = DeviceKind::kCuda,
    .order = "mma_online",
    .doc = "rung 3: mma.sync, scores and weights in registers, copies one tile ahead",
    .priority = 50,
    .supports = supports,
    .launch = launch_into_queue<launch>,
};

}  // namespace tegula::cuda
