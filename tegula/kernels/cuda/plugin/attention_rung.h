// Launches of the rungs below the Hopper kernel.
#pragma once

#include "tegula/kernels/cuda/attention_rungs.h"
#include "tegula/kernels/cuda/describe/attention_query.h"
#include "tegula/kernels/cuda/plugin/attention_count.h"
#include "tegula/kernels/cuda/plugin/launch.h"

namespace tegula::cuda {

template <bool kIsNaive>
Status launch_rung(const DeviceCall& call, const Stream& to) {
  TEGULA_TRY(count_attention(call, false));
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
  a.stream = to;
  return rung->launch(a, static_cast<float*>(call.workspace));
}

}  // namespace tegula::cuda
