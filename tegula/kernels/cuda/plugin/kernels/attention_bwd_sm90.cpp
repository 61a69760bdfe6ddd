// Gradients of attention on Hopper.
#include "tegula/kernels/cuda/attention_bwd.h"
#include "tegula/kernels/cuda/plugin/attention_call.h"

namespace tegula::cuda {

namespace {
bool supports(const KernelQuery& q) {
  const auto c = kernel::parse_attention(*q.attrs, q.in, true);
  if (!c.ok() || device_capability() != 90 || !is_plain(*c) || c->left >= 0 || c->right >= 0)
    return false;
  for (const TensorRef* t :
       {&q.in[0], &q.in[1], &q.in[2], &q.in[3], &q.in[5], &q.out[0], &q.out[1], &q.out[2]})
    if (t->dtype != DType::kBF16 || !is_copyable(*t)) return false;
  return q.in[4].is_contiguous() && check_attention(shape_of(*c), c->scale).ok() &&
         (c->d == 64 || c->d == 128);
}

int64_t workspace_bytes(const KernelQuery& q) {
  const auto c = kernel::parse_attention(*q.attrs, q.in, true);
  return c.ok() ? attention_bwd_workspace_bytes(shape_of(*c)) : 0;
}

Status launch(const DeviceCall& call) {
  const auto c = TEGULA_TRY(kernel::parse_attention(*call.attrs, call.in, true));
  const int d = static_cast<int>(c.d);
  const AttentionBwdKernel* k = TEGULA_TRY(loaded<AttentionBwdKernel>(
      cat("d", d, c.is_causal ? "_causal" : "_full"), "attention_bwd_sm90.cu",
      attention_bwd_defines(d, c.is_causal),
      [&](const std::string& cubin) { return AttentionBwdKernel::load(d, c.is_causal, cubin); }));
  AttentionBwdCall a;
  a.shape = shape_of(c), a.scale = c.scale;
  a.q = operand_of(call.in[0]), a.k = operand_of(call.in[1]), a.v = operand_of(call.in[2]);
  a.o = operand_of(call.in[3]), a.lse = call.in[4].as<float>(), a.d_o = operand_of(call.in[5]);
  a.dq = operand_of(call.out[0]), a.dk = operand_of(call.out[1]), a.dv = operand_of(call.out[2]);
  a.workspace = call.workspace, a.stream = call.queue->stream;
  return k->launch(a);
}
}  // namespace

extern constinit const KernelDef attention_bwd_sm90{
    .name = "attention_bwd_sm90",
    .op = "attention_bwd",
    .device = DeviceKind::kCuda,
    .order = "sm90_added",
    .doc = "wgmma and tensor copies; dq is summed over key tiles as they come",
    .priority = 100,
    .supports = supports,
    .workspace_bytes = workspace_bytes,
    .launch = launch_into_queue<launch>,
};

}  // namespace tegula::cuda
