// The rungs below the Hopper kernel as KernelDefs: bf16, causal or not, any strides of rows.
#pragma once

#include "tegula/kernels/cuda/attention_rungs.h"
#include "tegula/kernels/cuda/plugin/attention_call.h"

namespace tegula::cuda {

inline bool rung_supports(const KernelQuery& q, bool is_naive) {
  const auto c = kernel::parse_attention(*q.attrs, q.in, false);
  if (!c.ok() || !check_plain(*c).ok() || c->left >= 0 || c->right >= 0) return false;
  for (const TensorRef* t : {&q.in[0], &q.in[1], &q.in[2], &q.out[0]})
    if (t->dtype != DType::kBF16 || (t->stride[3] != 1 && t->shape[3] > 1)) return false;
  return q.out[1].is_contiguous() && check_attention_rung(shape_of(*c), is_naive).ok();
}

template <bool kIsNaive>
Status launch_rung(const DeviceCall& call) {
  const auto c = TEGULA_TRY(kernel::parse_attention(*call.attrs, call.in, false));
  const int head_dim = kIsNaive ? 0 : static_cast<int>(c.d);
  const AttentionRung* rung = TEGULA_TRY(loaded<AttentionRung>(
      cat(kIsNaive ? "naive" : "tiled", head_dim), AttentionRung::source(kIsNaive),
      AttentionRung::defines(head_dim),
      [&](const std::string& cubin) { return AttentionRung::load(head_dim, cubin); }));
  AttentionCall a;
  a.shape = shape_of(c), a.scale = c.scale;
  const auto operand = [](const TensorRef& t) {
    return AttentionOperand{t.data, t.stride[0], t.stride[1], t.stride[2]};
  };
  a.q = operand(call.in[0]), a.k = operand(call.in[1]), a.v = operand(call.in[2]);
  a.o = operand(call.out[0]), a.lse = call.out[1].as<float>();
  a.stream = call.queue->stream;
  return rung->launch(a, static_cast<float*>(call.workspace));
}

}  // namespace tegula::cuda
