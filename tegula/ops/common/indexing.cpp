#include "tegula/ops/indexing.h"

namespace tegula {

Result<DimMap> gather_dims(const OpCall& c, const Shape& x, const Shape& ids, bool is_adjoint) {
  const Gathering g(*c.attrs, ids.rank());
  if (g.dim < 0 || g.dim >= x.rank() || g.batch < 0 || g.batch > g.dim || g.batch > ids.rank())
    return invalid_argument(cat(c.op->name, ": dim ", g.dim, " and ", g.batch,
                                " batch dims of an indexed ", x, " and ids ", ids));
  if (x.rank() + ids.rank() - g.batch - 1 > kMaxRank)
    return unsupported(cat(c.op->name, ": more than 8 dims"));
  DimMap m;
  std::vector<DimExpr> of_x, of_ids, of_y;
  Shape y;
  auto plain = [](int f) { return DimExpr{0, {{static_cast<uint8_t>(f), 1}}}; };
  for (int d = 0; d < x.rank(); ++d) {
    if (d != g.dim) {
      of_x.push_back(plain(m.add_factor(cat("d", d), x[d])));
      of_y.push_back(of_x.back()), y.push_back(x[d]);
      continue;
    }
    of_x.push_back(plain(m.add_factor("n", x[d])));
    m.factors.back().index_operand = 1;
    for (int i = 0; i < ids.rank(); ++i) {
      if (i < g.batch) {
        if (!(ids[i] == x[i]))
          return invalid_argument(
              cat(c.op->name, ": batch dim ", i, " is ", x[i], ", in ids ", ids[i]));
        of_ids.push_back(of_x[static_cast<size_t>(i)]);
        continue;
      }
      of_ids.push_back(plain(m.add_factor(cat("i", i), ids[i])));
      of_y.push_back(of_ids.back()), y.push_back(ids[i]);
    }
  }
  if (is_adjoint && !(y == c.shape(0)))
    return invalid_argument(
        cat(c.op->name, ": operand 0 is ", c.in[0], ", from ids ", ids, " expected ", y));
  m.operands = {is_adjoint ? of_y : of_x, of_ids};
  m.results = {is_adjoint ? of_x : of_y};
  m.result_shapes = {is_adjoint ? x : y};
  m.finish();
  return m;
}

Bytes gather_bytes(const OpCall& c) {
  Bytes b{c.in[1].bytes(), c.out[0].bytes()};
  const Gathering g(*c.attrs, c.in[1].shape.rank());
  if (c.out[0].shape.numel() == 0) b.read = 0;
  // Elements of x behind one choice of everything but n; how many n may be chosen.
  const int64_t n = c.shape(0)[g.dim].bound();
  if (n == 0) return b;
  int64_t chosen = 1;
  for (int i = g.batch; i < g.n_ids; ++i) chosen *= c.shape(1)[i].bound();
  b.read += c.in[0].bytes() / n * std::min(n, chosen);
  return b;
}

Var one_hot(Var ids, Dim n, DType dtype, Loc loc) {
  Shape s = ids.shape();
  s.push_back(n);
  const Var classes = iota(ids.builder(), s, s.rank() - 1, ids.dtype(), loc);
  return cast(eq(unsqueeze(ids, -1, loc), classes, loc), dtype, loc);
}

}  // namespace tegula
