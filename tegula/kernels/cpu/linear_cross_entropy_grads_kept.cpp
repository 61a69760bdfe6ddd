#include "tegula/kernels/cpu/common/cross_entropy.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel {

namespace {
bool supports(const KernelQuery& q) {
  return parse_cross_entropy_grads(q.in, q.out, *q.attrs).ok();
}
int64_t workspace_bytes(const KernelQuery& q) {
  const auto c = parse_cross_entropy_grads(q.in, q.out, *q.attrs);
  return c.ok() ? c->bytes(q.target->n_threads) : 0;
}
}  // namespace

extern constinit const KernelDef linear_cross_entropy_grads_kept{
    .name = "linear_cross_entropy_grads_kept",
    .op = "linear_cross_entropy_grads",
    .order = "kb64",
    .doc = "128 MiB of logits (bf16: 256), kept from loss to gradients: three products, not four",
    .priority = 100,
    .supports = supports,
    .workspace_bytes = workspace_bytes,
    .launch = [](const KernelCall& call) { isa_table().cross_entropy_grads(call); },
};

}  // namespace tegula::kernel
