#include "tegula/kernels/cpu/common/cross_entropy.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel {

namespace {
bool supports(const KernelQuery& q) {
  const auto c = parse_cross_entropy(q.in, *q.attrs, true);
  return c.ok() && q.out[0].dtype == c->x->dtype && q.out[1].dtype == c->x->dtype;
}
int64_t workspace_bytes(const KernelQuery& q) {
  const auto c = parse_cross_entropy(q.in, *q.attrs, true);
  return c.ok() ? CrossEntropyWorkspace(*c, true).bytes(q.target->n_threads) : 0;
}
}  // namespace

extern constinit const KernelDef linear_cross_entropy_bwd_tiled{
    .name = "linear_cross_entropy_bwd_tiled",
    .op = "linear_cross_entropy_bwd",
    .order = "kb64",
    .doc = "logits computed again, a chunk of columns at a time; threads over tokens, then columns",
    .priority = 100,
    .supports = supports,
    .workspace_bytes = workspace_bytes,
    .launch = [](const KernelCall& call) { isa_table().linear_cross_entropy_bwd(call); },
};

}  // namespace tegula::kernel
