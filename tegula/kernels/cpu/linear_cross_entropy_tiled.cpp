#include "tegula/kernels/cpu/common/cross_entropy.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel {

namespace {
bool supports(const KernelQuery& q) {
  const auto c = parse_cross_entropy(q.in, *q.attrs, false);
  return c.ok() && q.out[0].dtype == DType::kF32 && q.out[1].dtype == DType::kF32;
}
int64_t workspace_bytes(const KernelQuery& q) {
  const auto c = parse_cross_entropy(q.in, *q.attrs, false);
  return c.ok() ? CrossEntropyWorkspace(*c, false).bytes(q.target->n_threads) : 0;
}
}  // namespace

extern constinit const KernelDef linear_cross_entropy_tiled{
    .name = "linear_cross_entropy_tiled",
    .op = "linear_cross_entropy",
    .order = "kb64",
    .doc = "online softmax over tiles of logits; threads over tokens",
    .priority = 100,
    .supports = supports,
    .workspace_bytes = workspace_bytes,
    .launch = [](const KernelCall& call) { isa_table().linear_cross_entropy(call); },
};

}  // namespace tegula::kernel
