// One query against a cache of keys: memory is read once, in the order in which it lies, for all
// heads of a span of keys; threads over spans. Bits are those of attention_flash.
#include "tegula/kernels/cpu/common/attention_decode.h"

#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel {

namespace {
bool supports(const KernelQuery& q) {
  const auto c = parse_attention(*q.attrs, q.in, false, kDecodes);
  return c.ok() && is_decode(*c) && q.out[0].dtype == q.in[0].dtype &&
         q.out[1].dtype == DType::kF32;
}
}  // namespace

extern constinit const KernelDef attention_decode{
    .name = "attention_decode",
    .op = "attention",
    .order = "kb64",
    .doc = "one query; keys of all heads read together, threads over spans of keys",
    .priority = 150,
    .supports = supports,
    .workspace_bytes = decode_workspace_bytes,
    .launch = [](const KernelCall& call) { isa_table().attention_decode(call); },
};

}  // namespace tegula::kernel
