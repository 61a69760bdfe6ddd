#include "tegula/kernels/cuda/attention_f32.h"
#include "tegula/kernels/cuda/describe/attention_query.h"
#include "tegula/kernels/cuda/plugin/attention_count.h"
#include "tegula/kernels/cuda/plugin/launch.h"

namespace tegula::cuda {

namespace {
Status launch(const DeviceCall& call, const Stream& to) {
  TEGULA_TRY(count_attention(call, false));
  const auto c = TEGULA_TRY(kernel::parse_attention(*call.attrs, call.in, false));
  const AttentionF32Variant v = TEGULA_TRY(choose_attention_f32(shape_of(c)));
  const AttentionF32Kernel* k = TEGULA_TRY(loaded<AttentionF32Kernel>(
      v.name(), "attention_f32_sm90.cu", v.defines(),
      [&](const std::string& cubin) { return AttentionF32Kernel::load(v, cubin); }));
  AttentionCall a = call_of(c, call, to);
  a.counter = static_cast<unsigned*>(TEGULA_TRY(zeroed_memory(sizeof(unsigned))));
  return k->launch(a);
}
}  // namespace

extern constinit const KernelLaunch attention_f32_sm90_launch{"attention_f32_sm90",
                                                              prepare_by<launch>};

}  // namespace tegula::cuda
