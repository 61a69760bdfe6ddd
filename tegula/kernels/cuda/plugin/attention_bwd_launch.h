// Launches of attention's gradients: the Hopper kernels, those of f32 and those of 16 bits, and
// those by mma.sync.
#pragma once

#include "tegula/kernels/cuda/describe/attention_bwd_query.h"
#include "tegula/kernels/cuda/plugin/attention_pad.h"

namespace tegula::cuda {

template <ChooseBwd kChoose, bool kIsOrdered>
Status launch_bwd(const DeviceCall& call, const Stream& to) {
  const auto c = TEGULA_TRY(kernel::parse_attention(*call.attrs, call.in, true));
  const AttentionBwdVariant v = TEGULA_TRY(kChoose(shape_of(c), kIsOrdered, *call.target));
  const AttentionBwdKernel* k = TEGULA_TRY(loaded<AttentionBwdKernel>(
      v.name(), v.source(), v.defines(),
      [&](const std::string& cubin) { return AttentionBwdKernel::load(v, cubin); }));
  AttentionBwdCall a;
  a.shape = shape_of(c), a.scale = c.scale, a.given = given_of(c);
  a.q = operand_of(call.in[0]), a.k = operand_of(call.in[1]), a.v = operand_of(call.in[2]);
  a.o = operand_of(call.in[3]), a.lse = call.in[4].as<float>(), a.d_o = operand_of(call.in[5]);
  if (c.dlse != nullptr) a.d_lse = c.dlse->as<float>();
  a.dq = operand_of(call.out[0]), a.dk = operand_of(call.out[1]), a.dv = operand_of(call.out[2]);
  if (c.bias != nullptr) {  // summed
    const Driver* d = TEGULA_TRY(Driver::get());
    a.d_bias = call.out[3].as<float>();
    TEGULA_TRY(d->start_fill(a.d_bias, 0, 4 * call.out[3].numel(), to));
  }
  a.workspace = call.workspace, a.stream = to;
  return k->launch(a);
}

template <ChooseBwd kChoose, bool kIsOrdered>
inline constexpr auto* bwd_launch =
    prepare_by<launch_padded<kBackwardOperands, launch_bwd<kChoose, kIsOrdered>>>;

}  // namespace tegula::cuda
