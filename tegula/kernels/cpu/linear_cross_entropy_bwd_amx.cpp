#include "tegula/kernels/cpu/common/cross_entropy.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel {

namespace {
bool supports(const KernelQuery& q) {
  const auto c = parse_cross_entropy(q.in, *q.attrs, true);
  return c.ok() && c->x->dtype == DType::kBF16 && q.out[0].dtype == DType::kBF16 &&
         q.out[1].dtype == DType::kBF16;
}
int64_t workspace_bytes(const KernelQuery& q) {
  const auto c = parse_cross_entropy(q.in, *q.attrs, true);
  return c.ok() ? AmxCrossEntropyWorkspace(*c, true).bytes() : 0;
}
}  // namespace

extern constinit const KernelDef linear_cross_entropy_bwd_amx{
    .name = "linear_cross_entropy_bwd_amx",
    .op = "linear_cross_entropy_bwd",
    .min_isa = Isa::kAmx,
    .order = "amx_kb64",
    .doc =
        "bf16 in AMX tiles, gradients of a chunk of logits at a time; threads over tokens, then "
        "columns",
    .priority = 200,
    .supports = supports,
    .workspace_bytes = workspace_bytes,
    .launch = [](const KernelCall& call) { isa_table().cross_entropy_bwd_amx(call); },
};

}  // namespace tegula::kernel
