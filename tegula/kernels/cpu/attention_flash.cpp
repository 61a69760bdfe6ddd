// Attention without the matrix of scores: blocks of 84 queries meet blocks of 64 keys in L1,
// softmax runs online, masked tiles are skipped at the grain of the register tile.
// [FlashAttention-2, 3.1]
#include "tegula/kernels/cpu/common/attention.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel {

namespace {
bool supports(const KernelQuery& q) {
  const auto c = parse_attention(*q.attrs, q.in, false, kTakesAll);
  return c.ok() && q.out[0].dtype == c->result_type() && q.out[1].dtype == DType::kF32;
}
int64_t workspace_bytes(const KernelQuery& q) {
  const auto c = parse_attention(*q.attrs, q.in, false, kTakesAll);
  return c.ok() ? AttentionWorkspace(*c, false).bytes(q.target->n_threads) : 0;
}
}  // namespace

extern constinit const KernelDef attention_flash{
    .name = "attention_flash",
    .op = "attention",
    .order = "kb64",
    .doc = "online softmax over packed key blocks; threads over heads and query blocks",
    .priority = 100,
    .supports = supports,
    .workspace_bytes = workspace_bytes,
    .launch = [](const KernelCall& call) { isa_table().attention_fwd(call); },
};

}  // namespace tegula::kernel
