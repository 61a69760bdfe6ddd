#include "tegula/kernels/cpu/common/cross_entropy.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel {

namespace {
bool supports(const KernelQuery& q) {
  const auto c = parse_cross_entropy(q.in, *q.attrs, false);
  return c.ok() && c->x->dtype == DType::kBF16 && q.out[0].dtype == DType::kF32 &&
         q.out[1].dtype == DType::kF32;
}
int64_t workspace_bytes(const KernelQuery& q) {
  const auto c = parse_cross_entropy(q.in, *q.attrs, false);
  return c.ok() ? AmxCrossEntropyWorkspace(*c, false).bytes() : 0;
}
}  // namespace

extern constinit const KernelDef linear_cross_entropy_amx{
    .name = "linear_cross_entropy_amx",
    .op = "linear_cross_entropy",
    .min_isa = Isa::kAmx,
    .order = "amx_kb64",
    .doc = "bf16 in AMX tiles, online softmax over 64 columns; threads over tokens",
    .priority = 200,
    .supports = supports,
    .workspace_bytes = workspace_bytes,
    .launch = [](const KernelCall& call) { isa_table().cross_entropy_amx(call); },
};

}  // namespace tegula::kernel
