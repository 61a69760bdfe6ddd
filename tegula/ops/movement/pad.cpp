// y = x surrounded (lo, hi) and interleaved (interior) along one dim with `value`: adjoint of
// slice.
#include "tegula/ops/pad.h"

#include "tegula/base/amounts.h"
#include "tegula/base/saturating.h"
#include "tegula/ops/common/literal.h"
#include "tegula/ops/common/rules.h"

namespace tegula {

namespace {
// The result's dim: what lo, interior and hi make of it, or "size", of which hi is what is left.
Result<Dim> padded(const OpCall& c, Dim n) {
  const int64_t lo = c.attrs->i("lo"), hi = c.attrs->i("hi"), interior = c.attrs->i("interior");
  const int64_t around = saturating_add(lo, hi);
  const Dim size = TEGULA_TRY(named("pad", mul(n, saturating_add(interior, 1))));
  if (!c.attrs->has("size"))
    return named("pad", add(size, n.bound() > 0 ? around - interior : around));
  const auto& to = c.attrs->dims("size");
  if (to.size() == 1 && !n.is_const() && !to[0].is_const() && n.symbol != to[0].symbol)
    return unsupported(cat("pad: ", n, " elements in ", to[0],
                           ": nothing says that they lie within it at every extent"));
  const int64_t covered = n.bound() > 0 ? saturating_add(lo, size.bound() - interior) : 0;
  if (to.size() != 1 || hi != 0 || to[0].bound() < covered)
    return invalid_argument(cat("pad: ", n, " elements from ", lo, " on, with ", interior,
                                " between them and ", hi, " after them, in ", to));
  return to[0];
}

Result<DimMap> dims(const OpCall& c) {
  const Shape& x = c.shape(0);
  TEGULA_TRY(check_literal(*c.op, c.attrs->f("value"), c.in[0].dtype));
  const int64_t dim = c.attrs->i("dim"), lo = c.attrs->i("lo"), hi = c.attrs->i("hi");
  const int64_t interior = c.attrs->i("interior");
  if (dim < 0 || dim >= x.rank() || lo < 0 || hi < 0 || interior < 0)
    return invalid_argument(cat("pad: dim ", dim, ", lo ", lo, ", hi ", hi, " of ", x));
  MapMaker m(1);
  for (int d = 0; d < x.rank(); ++d) {  // the padded one is read and written whole
    const bool is_padded = d == dim;
    const DimExpr at = is_padded ? MapMaker::whole() : MapMaker::plain(m.factor(cat("d", d), x[d]));
    m.operand(0, at);
    m.result(0, is_padded ? TEGULA_TRY(padded(c, x[d])) : x[d], at);
  }
  return std::move(m).done();
}

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const auto dim = static_cast<size_t>(a.attrs().i("dim"));
    const int64_t lo = a.attrs().i("lo"), step = a.attrs().i("interior") + 1;
    const S value = S(a.attrs().f("value"));
    for_each_index(shape_of(a.out[0]), [&](const Index& i) {
      const int64_t at = i[dim] - lo;
      Index from = i;
      from[dim] = at / step;
      const bool inside = at >= 0 && at % step == 0 && from[dim] < a.in[0].shape[dim];
      a.store_at(0, inside ? a.load_at(0, from) : value, i);
    });
  }
};
}  // namespace

Var pad(Var x, int dim, int64_t lo, int64_t hi, int64_t interior, double value, Loc loc) {
  if (dim < 0) dim += x.rank();
  if (lo == 0 && hi == 0 && interior == 0) return x;
  return x.builder().emit(
      pad_op,
      {{"dim", int64_t{dim}}, {"lo", lo}, {"hi", hi}, {"interior", interior}, {"value", value}},
      {x}, loc);
}

Var pad_to(Var x, int dim, int64_t lo, Dim size, int64_t interior, double value, Loc loc) {
  const Dim n = x.dim(dim);
  if (n.is_const() && size.is_const()) {
    if (n.bound() == 0) return pad(x, dim, 0, size.bound(), 0, value, loc);
    const int64_t step = saturating_add(interior, 1);
    const int64_t covered = saturating_add(saturating_mul(n.bound() - 1, step), 1);
    const int64_t before = saturating_add(lo, covered);
    return pad(x, dim, lo, saturating_add(size.bound(), -before), interior, value, loc);
  }
  if (lo == 0 && interior == 0 && n == size) return x;
  return x.builder().emit(pad_op,
                          {{"dim", int64_t{dim}},
                           {"lo", lo},
                           {"hi", 0},
                           {"interior", interior},
                           {"value", value},
                           {"size", std::vector<Dim>{size}}},
                          {x}, loc);
}

constinit const OpDef pad_op = {
    .name = "pad",
    .formula = "y[.., lo + (interior + 1) i, ..] = x[.., i, ..], value elsewhere",
    .group = "movement",
    .dims_fn = dims,
    .types = "T -> T",
    .attrs = {{"dim", AttrKind::kInt, true, "which dim"},
              {"lo", AttrKind::kInt, true, "elements before"},
              {"hi", AttrKind::kInt, true, "elements after"},
              {"interior", AttrKind::kInt, true, "elements between"},
              {"value", AttrKind::kFloat, true, "what they hold"},
              {"size", AttrKind::kDims, false, "of the result; hi is 0 and means what is left"}},
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      const auto dim = static_cast<int>(c.attrs().i("dim"));
      return {
          slice(c.grad[0], dim, c.attrs().i("lo"), c.in[0].dim(dim), c.attrs().i("interior") + 1)};
    },
    .jvp = [](Builder& b, const JvpCall& c) -> Grads {
      Attrs a = c.attrs();
      a.set("value", 0.0);
      return {b.emit(pad_op, std::move(a), {c.tangent[0]})};
    },
    .reference = reference_with_ints<Ref>,
    .samples =
        [] {
          const SampleInput x = {{DType::kF32, {3, 4}}};
          auto by = [](int64_t lo, int64_t hi, int64_t interior, double v) {
            return Attrs{{"dim", 1}, {"lo", lo}, {"hi", hi}, {"interior", interior}, {"value", v}};
          };
          auto to = [&](int64_t lo, int64_t interior, int64_t size) {
            Attrs a = by(lo, 0, interior, 0.5);
            a.set("size", std::vector<Dim>{size});
            return a;
          };
          return std::vector<Sample>{
              {"around", {x}, by(2, 1, 0, 0.0)},
              {"between", {x}, by(0, 3, 2, 7.0)},
              {"to a size", {x}, to(1, 2, 13)},
              {"to too small a size", {x}, to(1, 2, 10), "in [10]"},
              {"negative", {x}, by(-1, 0, 0, 0.0), "lo -1"},
              {"past all sizes", {x}, by(INT64_MAX, INT64_MAX, 0, 0.0), "is past"},
              {"past them between", {x}, by(0, 0, INT64_MAX, 0.0), "is past"},
              {"a fraction of integers",
               {{{DType::kI32, {3, 4}}}},
               by(1, 0, 0, 0.5),
               "does not hold"}};
        },
};

}  // namespace tegula
