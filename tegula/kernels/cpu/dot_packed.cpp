// The fast contraction: operands are packed into f32 panels (bf16 and f16 widen on the way) and
// multiplied in register tiles, threads over blocks of the output. Why it is fast: a tile of
// 6 × 16 (AVX2) or 14 × 32 (AVX-512) accumulators needs few loads for its multiply-adds, a strip
// of b stays in L1 and a block of a in L2 (Goto and van de Geijn 2008, section 4). k stays whole
// and ascending in every chain, so that tiles, threads and instruction set never change a bit.
#include "tegula/kernels/cpu/common/dot_thin_plan.h"
#include "tegula/kernels/cpu/common/dot_tuning.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel {

namespace {
bool is_f32_like(DType t) { return t == DType::kF32 || t == DType::kBF16 || t == DType::kF16; }

bool supports(const KernelQuery& q) {
  const auto c = parse_contraction(*q.attrs, q.in, q.out);
  return c.ok() && DotTiles::is_valid(q.tuning) && is_f32_like(c->in_dtype) &&
         is_f32_like(c->out_dtype) && q.in[1].dtype == c->in_dtype &&
         (!c->has_bias || q.in[2].dtype == c->out_dtype) &&
         (!c->accumulates || (c->out_dtype == DType::kF32 && q.in[2].dtype == DType::kF32));
}

int64_t workspace_bytes(const KernelQuery& q) {
  const auto c = parse_contraction(*q.attrs, q.in, q.out);
  if (!c.ok()) return 0;
  const Contraction rows = c->last_is_m ? c->swapped() : *c;
  return packed_bytes(rows, q.tuning, q.target->n_threads);
}
}  // namespace

extern constinit const KernelDef dot_packed{
    .name = "dot_packed",
    .op = "dot",
    .order = "fma_chain",
    .doc = "packed panels, register tiles, k in cache blocks, threads over the output",
    .priority = 100,
    .supports = supports,
    .workspace_bytes = workspace_bytes,
    .launch = [](const KernelCall& call) { isa_table().dot_packed(call); },
    .tuning = &kDotTuning,
};

}  // namespace tegula::kernel
