#include "tegula/kernels/cuda/attention_mma.h"

#include "tegula/kernels/cuda/plugin/attention_pad.h"

namespace tegula::cuda {

namespace {
Status launch(const DeviceCall& call, const Stream& to) {
  const auto c =
      TEGULA_TRY(kernel::parse_attention(*call.attrs, call.in, false, kernel::kTakesPages));
  const AttentionMmaVariant v =
      TEGULA_TRY(choose_attention_mma(shape_of(c), static_cast<int>(call.target->smem_bytes)));
  const AttentionMmaKernel* k = TEGULA_TRY(loaded<AttentionMmaKernel>(
      v.name(), "attention_mma.cu", v.defines(),
      [&](const std::string& cubin) { return AttentionMmaKernel::load(v, cubin); }));
  return k->launch(call_of(c, call, to));
}
}  // namespace

extern constinit const KernelLaunch attention_mma_launch{
    "attention_mma", prepare_by<launch_padded<kForwardOperands, launch>>};

}  // namespace tegula::cuda
