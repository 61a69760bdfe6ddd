// The contraction of bf16 operands by AMX: tiles of 16 × 16 f32 sums, two by two of them in
// registers, so that four loads feed four products of 16 × 16 × 32. Its order is the instruction's
// ("amx_pairs", isa/amx.h): per shard of k, 32 at a time, the even ones a chain, the odd ones
// another, their sum added to what was there. A few rows go the way of isa/dot_thin_tasks.h, which
// reads the other operand at the speed of memory and packs nothing, in the same order.
#include "tegula/kernels/cpu/common/dot_amx_plan.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel {

namespace {
bool supports(const KernelQuery& q) {
  const auto c = parse_contraction(*q.attrs, q.in, q.out);
  return c.ok() && q.in[0].dtype == DType::kBF16 && q.in[1].dtype == DType::kBF16 &&
         (c->out_dtype == DType::kBF16 || c->out_dtype == DType::kF32) &&
         (!c->has_bias || q.in[2].dtype == c->out_dtype);
}

int64_t workspace_bytes(const KernelQuery& q) {
  const auto c = parse_contraction(*q.attrs, q.in, q.out);
  if (!c.ok()) return 0;
  return amx_dot_bytes(c->last_is_m ? c->swapped() : *c, q.target->n_threads);
}
}  // namespace

extern constinit const KernelDef dot_amx{
    .name = "dot_amx",
    .op = "dot",
    .min_isa = Isa::kAmx,
    .order = "amx_pairs",
    .doc = "bf16 in AMX tiles, packed panels, k in cache blocks, threads over the output",
    .priority = 200,
    .supports = supports,
    .workspace_bytes = workspace_bytes,
    .launch = [](const KernelCall& call) { isa_table().dot_amx(call); },
};

}  // namespace tegula::kernel
