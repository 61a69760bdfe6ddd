#include "tegula/kernels/cuda/describe/dot_fused_query.h"

#include "tegula/base/dot_dims.h"
#include "tegula/kernels/cuda/dot_fused_text.h"

namespace tegula::cuda {

namespace {

constexpr int64_t kFewestRows = 128;  // of a tile

// The product's dims, which its factors have, as if it lay somewhere.
Result<TensorRef> product_of(const KernelQuery& q, DType dtype) {
  const DotDims names = TEGULA_TRY(DotDims::parse(q.attrs->str("dims")));
  Type type{dtype, {}};
  for (std::string_view name : names.out)
    for (size_t k : {0u, 1u}) {
      const DimNames& of = k == 0 ? names.a : names.b;
      int d = 0;
      while (d < of.size() && of[d] != name) ++d;
      if (d == of.size()) continue;
      type.shape.push_back(q.in[k].shape[d]);
      break;
    }
  return contiguous_ref(nullptr, type);
}

TensorRef without_ones(const TensorRef& t) {
  TensorRef out = t;
  out.rank = 0;
  for (int d = 0; d < t.rank; ++d) {
    if (t.shape[d] == 1) continue;
    out.shape[out.rank] = t.shape[d], out.stride[out.rank++] = t.stride[d];
  }
  return out;
}

}  // namespace

Result<DotFusedCall> parse_dot_fused(const KernelQuery& q) {
  if (!q.program || !q.program->resident || q.program->n_inner != 0)
    return unsupported("dot_fused: there is no sealed program without rows");
  const DType in = q.in[0].dtype, product = q.program->inputs[0].dtype;
  if (!is_narrow_float(in) || product != in)
    return unsupported("dot_fused: products of bf16 or f16, rounded to the same");
  DotFusedCall f;
  const TensorRef out = TEGULA_TRY(product_of(q, product));
  f.dot = TEGULA_TRY(parse_dot(
      KernelQuery{.attrs = q.attrs, .in = q.in.first(2), .out = {&out, 1}, .target = q.target}, in,
      product));
  const MatmulShape& s = f.dot.shape;
  if (f.dot.c.batch.count != 1 || s.m < kFewestRows || s.n % kPieceColumns != 0)
    return unsupported(cat("dot_fused: one product of at least ", kFewestRows,
                           " rows and a multiple of ", kPieceColumns, " columns, not ",
                           f.dot.c.batch.count, " of ", s.m, " x ", s.n));
  TEGULA_TRY(check_matmul(matmul_call(f.dot, 0, nullptr)));
  f.dot.out = nullptr;
  std::vector<TensorRef> operands = {without_ones(out)};
  operands.insert(operands.end(), q.in.begin() + 2, q.in.end());
  if (operands[0].rank != q.program->rank)
    return unsupported("dot_fused: the program's space is not the product's");
  f.tile = TEGULA_TRY(tile_call(*q.program, operands, q.out, *q.target));
  // All one, or rows of n columns.
  int64_t columns = s.n;
  for (const TileParam& p : f.tile.params)
    if (p.name == "inner1") columns = static_cast<int64_t>(p.value);
  if (f.tile.layout.n_inner > 2 || columns != s.n)
    return unsupported("dot_fused: an operand lies in more than rows and columns of the product");
  f.tile.layout.access[0] = TileAccess::kGiven;
  f.flops = 2 * s.m * s.n * s.k +
            tile::flops(*q.program, {operands[0].shape, static_cast<size_t>(q.program->rank)});
  f.variant = choose_matmul(s, q.target->multiprocessors);
  f.variant.is_fused = true;
  return f;
}

}  // namespace tegula::cuda
