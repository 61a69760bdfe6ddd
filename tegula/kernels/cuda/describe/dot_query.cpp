#include "tegula/kernels/cuda/describe/dot_query.h"

#include "tegula/base/round.h"
#include "tegula/kernels/cuda/matmul_rungs.h"

namespace tegula::cuda {

namespace {

using kernel::Operand;

// The stride of a loop as one index; `none` where it has a single step, and any stride will do.
Result<int64_t> stride_of(const kernel::Loops& loops, Operand operand, int64_t none) {
  int64_t stride = none;
  if (loops.count > 1 && !loops.is_linear(operand, &stride))
    return unsupported("dot: a side of several dims that lie apart: copy it");
  return stride;
}

// Which of two loops lies closest, and the stride of the other.
struct Layout {
  bool first_is_inner = false;
  int64_t stride = 0;
};
Result<Layout> layout_of(const kernel::Loops& first, const kernel::Loops& second, Operand operand) {
  Layout l;
  const int64_t s = TEGULA_TRY(stride_of(second, operand, 1));
  if (s == 1) {
    // A single row is taken as if more followed it, so that as many rows have its kernel.
    l.stride = TEGULA_TRY(stride_of(first, operand, second.count));
    return l;
  }
  const int64_t f = TEGULA_TRY(stride_of(first, operand, 1));
  if (f != 1) return unsupported("dot: no dim of an operand has stride 1: copy it");
  l.first_is_inner = true, l.stride = s;
  return l;
}

}  // namespace

Result<DotCall> parse_dot(const KernelQuery& q, DType dtype, DType out, int64_t most_shards) {
  DotCall d;
  d.c = TEGULA_TRY(kernel::parse_contraction(*q.attrs, q.in, q.out));
  d.a = &q.in[0], d.b = &q.in[1], d.out = &q.out[0];
  if (d.c.accumulates || d.c.has_epilogue() || d.c.k_shards > most_shards)
    return unsupported(cat("dot: this kernel has no epilogue, no start and at most ", most_shards,
                           " shards of k, not ", d.c.k_shards));
  if (d.a->dtype != dtype || d.b->dtype != dtype || d.out->dtype != out)
    return unsupported(cat("dot: this kernel is for ", dtype_name(dtype)));
  if (d.c.last_is_m) d.c = d.c.swapped(), std::swap(d.a, d.b);
  const Layout a = TEGULA_TRY(layout_of(d.c.m, d.c.k, kernel::kA));
  const Layout b = TEGULA_TRY(layout_of(d.c.k, d.c.n, kernel::kB));
  const Layout c = TEGULA_TRY(layout_of(d.c.m, d.c.n, kernel::kOut));
  if (c.first_is_inner) return unsupported("dot: the result's last dim must have stride 1");
  d.shape = {d.c.m.count,       d.c.n.count,        d.c.k.count,         a.first_is_inner,
             !b.first_is_inner, out == DType::kF32, dtype == DType::kF16};
  d.lda = a.stride, d.ldb = b.stride, d.ldc = c.stride;
  return d;
}

MatmulCall matmul_call(const DotCall& dot, int64_t batch, const Stream& stream) {
  MatmulCall call;
  call.shape = dot.shape;
  call.a = dot.operand(*dot.a, kernel::kA, batch, dot.lda);
  call.b = dot.operand(*dot.b, kernel::kB, batch, dot.ldb);
  call.c = {nullptr, dot.ldc};
  if (dot.out) call.c = dot.operand(*dot.out, kernel::kOut, batch, dot.ldc);
  call.stream = stream;
  return call;
}

bool rung_supports(const KernelQuery& q) {
  const auto d = parse_dot(q, DType::kF32);
  if (!d.ok()) return false;
  const MatmulShape& s = d->shape;
  // Row after row without gaps; one row may have any stride.
  return !s.a_mn_major && s.b_mn_major && (s.m == 1 || d->lda == s.k) &&
         (s.k == 1 || d->ldb == s.n) && (s.m == 1 || d->ldc == s.n) &&
         check_matmul_rung(s.m, s.n, s.k).ok();
}

}  // namespace tegula::cuda
