#include "tegula/kernels/cuda/plugin/attention_pad.h"

namespace tegula::cuda {

namespace {
Status launch(const DeviceCall& call, const Stream& to) {
  const auto c = TEGULA_TRY(kernel::parse_attention(*call.attrs, call.in, false, {.e4m3 = true}));
  const AttentionVariant v = TEGULA_TRY(choose_attention(shape_of(c)));
  const AttentionKernel* k = TEGULA_TRY(loaded<AttentionKernel>(
      v.name(), "attention_sm90.cu", v.defines(),
      [&](const std::string& cubin) { return AttentionKernel::load(v, cubin); }));
  AttentionCall a = call_of(c, call, to);
  a.counter = static_cast<unsigned*>(TEGULA_TRY(zeroed_memory(sizeof(unsigned))));
  a.q_descale = descale_of(c, 0), a.k_descale = descale_of(c, 1), a.v_descale = descale_of(c, 2);
  return k->launch(a);
}
}  // namespace

extern constinit const KernelLaunch attention_sm90_launch{
    "attention_sm90", prepare_by<launch_padded<kForwardOperands, launch>>};

}  // namespace tegula::cuda
