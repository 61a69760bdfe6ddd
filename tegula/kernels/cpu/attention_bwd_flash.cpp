// Attention's gradients without the matrix of scores; threads over (batch, key head).
#include "tegula/kernels/cpu/common/attention.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel {

namespace {
// With a softcap its error passed twice the naive kernel's in one sample: left to the
// decomposition. The gradient of a bias may sum over batch and heads, which threads share: left to
// the reference.
bool supports(const KernelQuery& q) {
  const auto c = parse_attention(*q.attrs, q.in, true);
  if (!c.ok() || c->softcap > 0 || c->bias != nullptr || q.out.size() != 3) return false;
  for (const TensorRef& t : q.out)
    if (t.dtype != q.in[0].dtype) return false;
  return true;
}
int64_t workspace_bytes(const KernelQuery& q) {
  const auto c = parse_attention(*q.attrs, q.in, true);
  return c.ok() ? AttentionWorkspace(*c, true).bytes(q.n_threads) : 0;
}
}  // namespace

extern constinit const KernelDef attention_bwd_flash{
    .name = "attention_bwd_flash",
    .op = "attention_bwd",
    .order = "fma_chain",
    .doc = "weights computed again per tile; threads over heads",
    .priority = 100,
    .supports = supports,
    .workspace_bytes = workspace_bytes,
    .launch = [](const KernelCall& call) { isa_table().attention_bwd(call); },
};

}  // namespace tegula::kernel
