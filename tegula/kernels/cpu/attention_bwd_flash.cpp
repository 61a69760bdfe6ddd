// Attention's gradients without the matrix of scores; threads over blocks of rows and columns of
// keys.
#include "tegula/kernels/cpu/common/attention.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel {

namespace {
bool supports(const KernelQuery& q) {
  const auto c = parse_attention(*q.attrs, q.in, true, kTakesParts);
  if (!c.ok() || q.out.size() != (c->bias != nullptr ? 4u : 3u)) return false;
  for (int i = 0; i < 3; ++i)
    if (q.out[static_cast<size_t>(i)].dtype != c->result_type()) return false;
  return true;
}
int64_t workspace_bytes(const KernelQuery& q) {
  const auto c = parse_attention(*q.attrs, q.in, true, kTakesParts);
  return c.ok() ? AttentionWorkspace(*c, true).bytes(q.target->n_threads) : 0;
}
}  // namespace

extern constinit const KernelDef attention_bwd_flash{
    .name = "attention_bwd_flash",
    .op = "attention_bwd",
    .order = "fma_chain",
    .doc = "weights computed again per tile; threads over blocks of rows and of keys",
    .writes_strides = true,
    .priority = 100,
    .supports = supports,
    .workspace_bytes = workspace_bytes,
    .launch = [](const KernelCall& call) { isa_table().attention_bwd(call); },
};

}  // namespace tegula::kernel
