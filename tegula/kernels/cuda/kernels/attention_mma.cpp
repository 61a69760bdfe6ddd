// Attention by mma.sync: what GPUs before and beside Hopper get, and the third rung.
#include "tegula/kernels/cuda/attention_mma.h"

#include "tegula/kernels/cuda/describe/attention_padded.h"

namespace tegula::cuda {

namespace {
Status check(const KernelQuery& q) {
  TEGULA_TRY(check_device(q, 80));
  const auto c = TEGULA_TRY(kernel::parse_attention(*q.attrs, q.in, false));
  TEGULA_TRY(check_whole(c));
  TEGULA_TRY(check_readable(c, false, {&q.in[0], &q.in[1], &q.in[2]}));
  TEGULA_TRY(check_results(c, q.out[0], q.out[1]));
  TEGULA_TRY(check_attention_mma(shape_of(c), c.scale));
  return check_smem(
      q, TEGULA_TRY(choose_attention_mma(shape_of(c), static_cast<int>(q.target->smem_bytes)))
             .smem_bytes());
}
}  // namespace

extern constinit const KernelDef attention_mma{
    .name = "attention_mma",
    .op = "attention",
    .device = DeviceKind::kCuda,
    .order = "mma_online",
    .doc = "rung 3: mma.sync, scores and weights in registers, copies one tile ahead",
    .priority = 50,
    .supports = passes<check_padded<kForwardOperands, check>>,
    .check = check_padded<kForwardOperands, check>,
    .workspace_bytes = padded_workspace_bytes<kForwardOperands, nullptr>,
};

}  // namespace tegula::cuda
