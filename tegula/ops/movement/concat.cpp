// y = the operands laid one after another along `dim`.
#include "tegula/ops/common/rules.h"
#include "tegula/ops/dynamic_slice.h"

namespace tegula {

namespace {
Result<DimMap> dims(const OpCall& c) {
  const int64_t dim = c.attrs->i("dim");
  if (c.in.empty() || dim < 0 || dim >= c.shape(0).rank())
    return invalid_argument(cat("concat: dim ", dim, " of ", c.in.size(), " operands"));
  MapMaker m(c.in.size());
  Shape y = c.shape(0);
  for (size_t k = 1; k < c.in.size(); ++k) {
    const Shape& x = c.shape(k);
    bool fits = x.rank() == y.rank();
    for (int d = 0; fits && d < y.rank(); ++d) fits = d == dim || x[d] == y[d];
    if (!fits)
      return invalid_argument(cat("concat: operand ", k, " is ", x, ", operand 0 is ", c.shape(0),
                                  ": only dim ", dim, " may differ"));
    y[static_cast<int>(dim)] = TEGULA_TRY(add(y[static_cast<int>(dim)], x[static_cast<int>(dim)]));
  }
  for (int d = 0; d < y.rank(); ++d) m.result(0, y[d], m.factor(cat("d", d), y[d]));
  int64_t offset = 0;
  for (size_t k = 0; k < c.in.size(); ++k) {
    for (int d = 0; d < y.rank(); ++d)
      m.operand(k, {d == dim ? -offset : 0, {{static_cast<uint8_t>(d), 1}}});
    offset += c.shape(k)[static_cast<int>(dim)].bound();
  }
  return std::move(m).done();
}

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const auto dim = static_cast<size_t>(a.attrs().i("dim"));
    int64_t offset = 0;
    for (size_t k = 0; k < a.in.size(); ++k) {
      for_each_index(shape_of(a.in[k]), [&](const Index& i) {
        Index to = i;
        to[dim] += offset;
        a.store_at(0, a.load_at(k, i), to);
      });
      offset += a.in[k].shape[dim];
    }
  }
};

// Each operand's piece. Where a symbolic one lies before it, its place is known at run time only.
Grads vjp(Builder& b, const VjpCall& c) {
  const auto dim = static_cast<int>(c.attrs().i("dim"));
  Grads g;
  int64_t offset = 0;
  Var extents;  // of the symbolic ones
  for (const Var& x : c.in) {
    if (extents.valid()) {
      std::vector<Var> starts(static_cast<size_t>(x.rank()), constant(b, 0, DType::kI64));
      starts[static_cast<size_t>(dim)] = extents + static_cast<double>(offset);
      g.push_back(dynamic_slice(c.grad[0], starts, x.shape()));
    } else {
      g.push_back(slice(c.grad[0], dim, offset, x.dim(dim)));
    }
    if (x.dim(dim).is_const()) {
      offset += x.dim(dim).bound();
    } else {
      const Var n = extent(x, dim, DType::kI64);
      extents = extents.valid() ? extents + n : n;
    }
  }
  return g;
}
}  // namespace

Var concat(std::span<const Var> xs, int dim, Loc loc) {
  if (xs.empty()) return {};  // no builder to tell: whatever takes it does
  if (xs.size() == 1) return xs[0];
  if (dim < 0) dim += xs[0].rank();
  return xs[0].builder().emit_n(concat_op, {{"dim", int64_t{dim}}}, xs, {}, loc)[0];
}

constinit const OpDef concat_op = {
    .name = "concat",
    .formula = "y[.., offset_k + i, ..] = x_k[.., i, ..]",
    .group = "movement",
    .dims_fn = dims,
    .types = "T, ... -> T",
    .attrs = {{"dim", AttrKind::kInt, true, "along which dim"}},
    .vjp = vjp,
    .reference = reference_with_ints<Ref>,
    .samples =
        [] {
          const SampleInput a = {{DType::kF32, {3, 4}}}, b = {{DType::kF32, {3, 2}}};
          return std::vector<Sample>{{"columns", {a, b, a}, {{"dim", int64_t{1}}}},
                                     {"rows", {a, a}, {{"dim", int64_t{0}}}},
                                     {"misfit", {a, b}, {{"dim", int64_t{0}}}, "only dim 0"}};
        },
    .is_linear = true,
    .joins = "dim",
};

}  // namespace tegula
