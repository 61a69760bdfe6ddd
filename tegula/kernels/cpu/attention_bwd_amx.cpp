// Attention's gradients in bf16 by AMX: weights computed again per 32 by 32 tile, gradients summed
// in f32; threads over blocks of rows and columns of keys.
#include "tegula/kernels/cpu/common/attention_amx.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel {

namespace {
bool supports(const KernelQuery& q) {
  const auto c = parse_attention(*q.attrs, q.in, true, kTakesParts);
  if (!c.ok() || !amx_attends(*c) || q.out.size() != 3) return false;
  for (const TensorRef& t : q.out)
    if (t.dtype != c->result_type()) return false;
  return true;
}
int64_t workspace_bytes(const KernelQuery& q) {
  const auto c = parse_attention(*q.attrs, q.in, true, kTakesParts);
  return c.ok() ? AmxAttentionWorkspace(*c, true).bytes(q.target->n_threads) : 0;
}
}  // namespace

extern constinit const KernelDef attention_bwd_amx{
    .name = "attention_bwd_amx",
    .op = "attention_bwd",
    .min_isa = Isa::kAmx,
    .order = "amx_pairs",
    .doc =
        "bf16 in AMX tiles, weights computed again per tile; threads over blocks of rows and keys",
    .writes_strides = true,
    .priority = 200,
    .supports = supports,
    .workspace_bytes = workspace_bytes,
    .launch = [](const KernelCall& call) { isa_table().attention_bwd_amx(call); },
};

}  // namespace tegula::kernel
