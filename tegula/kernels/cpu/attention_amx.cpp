// Attention of bf16 operands by AMX: blocks of 128 queries meet chunks of 512 keys, 32 by 32 scores
// in registers; softmax runs online over whole chunks, and tiles that no query of 32 sees are
// skipped. What the scores have besides a mask (softcap, bias, alibi, dropout) is
// attention_flash's.
#include "tegula/kernels/cpu/common/attention_amx.h"

#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel {

namespace {
bool supports(const KernelQuery& q) {
  const auto c = parse_attention(*q.attrs, q.in, false, kTakesParts);
  return c.ok() && amx_attends(*c) && q.out[0].dtype == c->result_type() &&
         q.out[1].dtype == DType::kF32;
}
int64_t workspace_bytes(const KernelQuery& q) {
  const auto c = parse_attention(*q.attrs, q.in, false, kTakesParts);
  return c.ok() ? AmxAttentionWorkspace(*c, false).bytes(q.target->n_threads) : 0;
}
}  // namespace

extern constinit const KernelDef attention_amx{
    .name = "attention_amx",
    .op = "attention",
    .min_isa = Isa::kAmx,
    .order = "amx_kb512",
    .doc = "bf16 in AMX tiles, online softmax over chunks of keys; threads over heads and queries",
    .priority = 200,
    .supports = supports,
    .workspace_bytes = workspace_bytes,
    .launch = [](const KernelCall& call) { isa_table().attention_fwd_amx(call); },
};

}  // namespace tegula::kernel
