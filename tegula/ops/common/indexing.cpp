#include "tegula/ops/common/gathering.h"

namespace tegula {

Status check_gathering(const OpCall& c, int x_rank) {
  const auto dim = c.attrs->get_or<int64_t>("dim", 0), batch = c.attrs->get_or<int64_t>("batch", 0);
  if (dim >= 0 && dim < x_rank && batch >= 0 && batch <= dim && batch <= c.in[1].shape.rank())
    return {};
  return invalid_argument(cat(c.op->name, ": dim ", dim, " and ", batch,
                              " batch dims of an indexed tensor of rank ", x_rank, " and ids ",
                              c.in[1]));
}

Result<DimMap> gather_dims(const OpCall& c, const Shape& x, const Shape& ids, bool is_adjoint) {
  TEGULA_TRY(check_gathering(c, x.rank()));
  const Gathering g(*c.attrs, ids.rank());
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

// The indexed dim goes last, where ids of all other dims are a batch.
Var take_along(Var x, Var ids, int dim, Loc loc) {
  const int last = x.rank() - 1;
  if (last < 0) return x.builder().fail(invalid_argument("take_along: x is a scalar", loc));
  return transpose(
      gather(transpose(x, dim, -1, loc), transpose(ids, dim, -1, loc), last, last, loc), dim, -1,
      loc);
}
Var put_along(Var x, Var ids, Var y, int dim, ScatterMode mode, Loc loc) {
  const int last = x.rank() - 1;
  if (last < 0) return x.builder().fail(invalid_argument("put_along: x is a scalar", loc));
  return transpose(scatter(transpose(x, dim, -1, loc), transpose(ids, dim, -1, loc),
                           transpose(y, dim, -1, loc), last, mode, last, loc),
                   dim, -1, loc);
}

namespace {
// x with its first k dims as one, and ids as indices of that; -1 where one of the k is out of
// range.
struct Flat {
  Var x, ids;
};
Flat flatten(Var x, Var ids, std::string_view what, Loc loc) {
  Builder& b = x.builder();
  const int k = ids.rank() > 0 && ids.dim(-1 + ids.rank()).is_const()
                    ? static_cast<int>(ids.dim(ids.rank() - 1).bound())
                    : 0;
  if (k < 1 || k > x.rank()) {
    b.fail(invalid_argument(cat(what, ": ids are ", ids.type(), ", their last dim must be 1 to ",
                                x.rank(), ", the dims of x that it indexes"),
                            loc));
    return {x, ids};
  }
  Shape flat = {1};
  for (int d = k; d < x.rank(); ++d) flat.push_back(x.dim(d));
  Var at, is_inside;
  for (int d = 0; d < k; ++d) {
    const Var id = squeeze(slice(ids, -1, d, 1, 1, loc), -1, loc);
    const Var size = extent(x, d, ids.dtype(), loc);
    const Var fits = logical_and(ge(id, 0.0, loc), lt(id, size, loc), loc);
    at = d == 0 ? id : add(mul(at, size, loc), id, loc);
    is_inside = d == 0 ? fits : logical_and(is_inside, fits, loc);
    const auto rows = mul(flat[0], x.dim(d));
    if (!rows.ok()) return b.fail(invalid_argument(rows.error().message, loc)), Flat{x, ids};
    flat[0] = *rows;
  }
  return {reshape(x, flat, loc), select(is_inside, at, fill(b, -1, at.type(), loc), loc)};
}
}  // namespace

Var gather_nd(Var x, Var ids, Loc loc) {
  const Flat f = flatten(x, ids, "gather_nd", loc);
  return gather(f.x, f.ids, 0, 0, loc);
}
Var scatter_nd(Var x, Var ids, Var y, ScatterMode mode, Loc loc) {
  const Flat f = flatten(x, ids, "scatter_nd", loc);
  return reshape(scatter(f.x, f.ids, y, 0, mode, 0, loc), x.shape(), loc);
}

Var one_hot(Var ids, Dim n, DType dtype, Loc loc) {
  Shape s = ids.shape();
  if (s.rank() == kMaxRank)
    return ids.builder().fail(
        invalid_argument(cat("one_hot: of ids ", ids.type(), ", at most 7 dims"), loc));
  s.push_back(n);
  const Var classes = iota(ids.builder(), s, s.rank() - 1, ids.dtype(), loc);
  return cast(eq(unsqueeze(ids, -1, loc), classes, loc), dtype, loc);
}

}  // namespace tegula
