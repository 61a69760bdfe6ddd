// Attention by mma.sync: what GPUs before and beside Hopper get, and the third rung.
#include "tegula/kernels/cuda/attention_mma.h"

#include "tegula/kernels/cuda/describe/attention_padded.h"

namespace tegula::cuda {

namespace {
Status check(const KernelQuery& q) {
  TEGULA_TRY(check_device(q, 80));
  const auto c = TEGULA_TRY(kernel::parse_attention(*q.attrs, q.in, false, kernel::kTakesPages));
  TEGULA_TRY(check_whole(c));
  TEGULA_TRY(check_readable(c, false, {&q.in[0], &q.in[1], &q.in[2]}));
  TEGULA_TRY(check_results(c, q.out[0], q.out[1]));
  TEGULA_TRY(check_attention_mma(shape_of(c), c.scale));
  return check_smem(
      q, TEGULA_TRY(choose_attention_mma(shape_of(c), static_cast<int>(q.target->smem_bytes)))
             .smem_bytes());
}

// Pages are too many to be copied into padded rows.
Status check_any(const KernelQuery& q) {
  if (!q.attrs->flag("paged")) return check_padded<kForwardOperands, check>(q);
  if (has_padded(kForwardOperands, q.in, q.out) || q.in[1].shape[0] == 0)
    return unsupported("keys in pages: rows must be whole 16 bytes, side by side: gather them");
  return check(q);
}
}  // namespace

extern constinit const KernelDef attention_mma{
    .name = "attention_mma",
    .op = "attention",
    .device = DeviceKind::kCuda,
    .order = "mma_online",
    .doc = "rung 3: mma.sync, scores and weights in registers, copies one tile ahead, of pages too",
    .priority = 50,
    .supports = passes<check_any>,
    .check = check_any,
    .workspace_bytes = padded_workspace_bytes<kForwardOperands, nullptr>,
};

}  // namespace tegula::cuda
