// attention_decode for bf16 on processors with AMX: keys are multiplied where they lie, without a
// transposition, in another order of sums.
#include "tegula/kernels/cpu/common/attention_decode.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel {

namespace {
bool supports(const KernelQuery& q) {
  const auto c = parse_attention(*q.attrs, q.in, false, kTakesPages);
  return c.ok() && is_decode(*c) && c->d % 32 == 0 && c->d <= kMaxDecodeWidth &&
         q.in[0].dtype == DType::kBF16 && q.out[0].dtype == DType::kBF16 &&
         q.out[1].dtype == DType::kF32;
}
}  // namespace

extern constinit const KernelDef attention_decode_amx{
    .name = "attention_decode_amx",
    .op = "attention",
    .min_isa = Isa::kAmx,
    .order = "amx_kb64",
    .doc = "one query, bf16: scores in AMX tiles; else as attention_decode",
    .priority = 250,
    .supports = supports,
    .workspace_bytes = decode_workspace_bytes,
    .launch = [](const KernelCall& call) { isa_table().attention_decode_amx(call); },
};

}  // namespace tegula::kernel
