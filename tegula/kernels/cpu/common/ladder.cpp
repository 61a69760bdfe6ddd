#include "tegula/kernels/cpu/common/ladder.h"

namespace tegula::kernel {

bool ladder_supports(const KernelQuery& q) {
  const auto c = parse_contraction(*q.attrs, q.in, q.out);
  if (!c.ok() || c->accumulates || c->has_epilogue() || c->last_is_m) return false;
  if (c->in_dtype != DType::kF32 || q.in[1].dtype != DType::kF32 || c->out_dtype != DType::kF32)
    return false;
  const auto rows = [](const Loops& outer, const Loops& inner, Operand o) {
    int64_t row, one;
    return outer.is_linear(o, &row) && inner.is_linear(o, &one) && (one == 1 || inner.count <= 1);
  };
  return c->batch.count == 1 && rows(c->m, c->k, kA) && rows(c->k, c->n, kB) &&
         rows(c->m, c->n, kOut);
}

Contraction ladder_contraction(const KernelCall& call) {
  const auto c = parse_contraction(*call.attrs, call.in, call.out);
  TEGULA_CHECK(c.ok(), c.ok() ? "" : c.error().message);
  return *c;
}

}  // namespace tegula::kernel
