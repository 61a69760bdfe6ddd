// y = x with its elements, in row-major order, under another shape. A view where strides allow,
// else a copy. Its factors are the common refinement of both shapes, so a cut passes through
// wherever the shapes agree: [6, 4] -> [2, 12] has factors 2, 3, 4.
#include "tegula/ops/common/rules.h"

namespace tegula {

namespace {
// The dims of both sides, consumed from the front; `left` is what remains of the current dim.
struct Side {
  const Shape& shape;
  int d = 0;
  Dim left = 1;
  std::vector<DimExpr> exprs;
  bool more() {
    while (left == Dim(1) && d < shape.rank()) {
      left = shape[d++];
      exprs.emplace_back();
    }
    return !(left == Dim(1));
  }
};

void take(DimMap& m, Side& a, Side& b, Dim size, bool whole) {
  const auto f = static_cast<uint8_t>(m.add_factor(cat("r", m.factors.size()), size));
  m.factors.back().whole = whole;
  a.exprs.back().terms.push_back({f, 1});
  b.exprs.back().terms.push_back({f, 1});
}

// Coefficients: within a dim, a factor's is the product of the sizes after it.
Status set_coefficients(DimMap& m, std::vector<DimExpr>& dims) {
  for (DimExpr& e : dims) {
    Dim coeff = 1;
    for (size_t t = e.terms.size(); t-- > 0;) {
      e.terms[t].coeff = coeff;
      if (t > 0) coeff = TEGULA_TRY(mul(coeff, m.factors[e.terms[t].factor].size));
    }
  }
  return {};
}

Error misfit(const Shape& x, const Shape& y) {
  return invalid_argument(
      cat("reshape: ", x, " has ", x.numel(), " elements, ", y, " has ", y.numel()));
}

// A run of dims on either side that only agree as a whole, e.g. [2, 3] -> [3, 2]: one uncut factor.
// It has no affine form, so no terms: the runs are read whole.
Status take_run(DimMap& m, Side& a, Side& b) {
  Dim pa = a.left, pb = b.left;
  a.exprs.back().is_window = b.exprs.back().is_window = true;
  while (!(pa == pb)) {
    const bool a_ends = a.d >= a.shape.rank(), b_ends = b.d >= b.shape.rank();
    if (a_ends && b_ends) return misfit(a.shape, b.shape);
    // The smaller one; but two symbolic dims have no product where the other side can grow.
    const auto can_grow = [](const Side& s, const Dim& p) {
      return s.d < s.shape.rank() && (p.is_const() || s.shape[s.d].is_const());
    };
    const bool a_can = can_grow(a, pa), b_can = can_grow(b, pb);
    const bool a_is_smaller = pa.bound() < pb.bound();
    Side& grow = a_can != b_can ? (a_can ? a : b) : b_ends || (!a_ends && a_is_smaller) ? a : b;
    const Dim next = grow.shape[grow.d++];
    grow.exprs.push_back({0, {}, true});
    Dim& p = &grow == &a ? pa : pb;
    p = TEGULA_TRY(mul(p, next));
  }
  a.left = b.left = 1;
  m.add_factor(cat("r", m.factors.size()), pa);
  m.factors.back().whole = true;
  return {};
}

Result<DimMap> dims(const OpCall& c) {
  const Shape& x = c.shape(0);
  const auto& to = c.attrs->dims("shape");
  if (to.size() > kMaxRank) return unsupported("reshape: more than 8 dims");
  const Shape y{std::span<const Dim>(to)};
  DimMap m;
  if (x.numel() == 0 && y.numel() == 0) {  // nothing to refine: every dim is read whole
    m.operands.emplace_back(static_cast<size_t>(x.rank()), DimExpr{0, {}, true});
    m.results.emplace_back(static_cast<size_t>(y.rank()), DimExpr{0, {}, true});
    m.result_shapes.push_back(y);
    m.finish();
    return m;
  }
  Side a{x}, b{y};
  for (;;) {
    const bool ma = a.more(), mb = b.more();
    if (!ma && !mb) break;
    if (!ma || !mb) return misfit(x, y);
    if (a.left == b.left) {
      take(m, a, b, a.left, false);
      a.left = b.left = 1;
    } else if (auto q = div_exact(b.left, a.left); q.ok() && a.left.bound() != 0) {
      take(m, a, b, a.left, false);
      a.left = 1, b.left = *q;
    } else if (auto p = div_exact(a.left, b.left); p.ok() && b.left.bound() != 0) {
      take(m, a, b, b.left, false);
      b.left = 1, a.left = *p;
    } else {
      TEGULA_TRY(take_run(m, a, b));
    }
  }
  TEGULA_TRY(set_coefficients(m, a.exprs));
  TEGULA_TRY(set_coefficients(m, b.exprs));
  m.operands.push_back(std::move(a.exprs));
  m.results.push_back(std::move(b.exprs));
  m.result_shapes.push_back(y);
  m.finish();
  return m;
}

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    Index from{};
    for_each_index(shape_of(a.out[0]), [&](const Index& i) {
      a.store_at(0, a.load_at(0, from), i);
      for (int d = a.in[0].rank - 1; d >= 0; --d) {
        const auto k = static_cast<size_t>(d);
        if (++from[k] < a.in[0].shape[d]) break;
        from[k] = 0;
      }
    });
  }
};

Attrs localize(const OpCall& c, const DimMap& m, int factor, int64_t lo, int64_t hi) {
  Attrs a = *c.attrs;
  auto shape = a.dims("shape");
  for (size_t d = 0; d < shape.size(); ++d)
    for (const DimTerm& t : m.results[0][d].terms)
      if (t.factor == factor)
        shape[d] = shape[d].bound() / m.factors[t.factor].size.bound() * (hi - lo);
  a.set("shape", shape);
  return a;
}
}  // namespace

constinit const OpDef reshape_op = view_op({
    .name = "reshape",
    .formula = "y's elements in row-major order are x's",
    .dims_fn = dims,
    .attrs = {{"shape", AttrKind::kDims, true, "result shape"}},
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      return {reshape(c.grad[0], c.in[0].shape())};
    },
    .reference = reference_with_ints<Ref>,
    .samples =
        [] {
          auto to = [](std::vector<Dim> s) { return Attrs{{"shape", std::move(s)}}; };
          return std::vector<Sample>{{"merge", {{{DType::kF32, {2, 3, 4}}}}, to({6, 4})},
                                     {"split", {{{DType::kF32, {6, 4}}}}, to({2, 3, 4})},
                                     {"refine", {{{DType::kF32, {6, 4}}}}, to({2, 12})},
                                     {"disagree", {{{DType::kF32, {4, 2, 3}}}}, to({4, 3, 2})},
                                     {"ones", {{{DType::kF32, {1, 6, 1}}}}, to({6})},
                                     {"to scalar", {{{DType::kF32, {1, 1}}}}, to({})},
                                     {"empty", {{{DType::kF32, {6, 0}}}}, to({0, 5, 1})},
                                     {"misfit", {{{DType::kF32, {6, 4}}}}, to({5, 5}), "elements"}};
        },
    .localize = localize,
});

}  // namespace tegula
