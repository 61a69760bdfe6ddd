// y[i] = x[start + step i] along one dim; a view. A negative step reverses.
#include "tegula/base/saturating.h"
#include "tegula/ops/common/rules.h"
#include "tegula/ops/indexing.h"
#include "tegula/ops/pad.h"

namespace tegula {

namespace {
Result<DimMap> dims(const OpCall& c) {
  const Shape& x = c.shape(0);
  const int64_t dim = c.attrs->i("dim"), start = c.attrs->i("start"), step = c.attrs->i("step");
  const auto& sizes = c.attrs->dims("size");
  if (dim < 0 || dim >= x.rank() || sizes.size() != 1 || step == 0)
    return invalid_argument(cat("slice: dim ", dim, ", step ", step, " of ", x));
  const Dim size = sizes[0], whole = x[static_cast<int>(dim)];
  if (!size.is_const() && !whole.is_const() && size.symbol != whole.symbol)
    return unsupported(cat("slice: ", size, " elements of dim ", dim, " of ", x,
                           ": nothing says that they lie within it at every extent; slice a dim of "
                           "constant size, or of the same symbol"));
  const int64_t n = x[static_cast<int>(dim)].bound();
  const int64_t last = saturating_add(start, saturating_mul(step, size.bound() - 1));
  // For one element or none the step says nothing, but strides are products with it. At an extent
  // of a symbol the dim may be shorter than at its bound, where the step has a meaning.
  const int64_t most = std::max<int64_t>(n, int64_t{1} << 22);
  if (step < -most || step > most)
    return invalid_argument(cat("slice: step ", step, " of dim ", dim, " of ", x));
  if (size.bound() > 0 && (start < 0 || start >= n || last < 0 || last >= n))
    return invalid_argument(
        cat("slice: elements ", start, " to ", last, " of dim ", dim, " of ", x));
  MapMaker m(1);
  for (int d = 0; d < x.rank(); ++d) {
    const bool cut = d == dim;
    const uint8_t f = m.factor(cat("d", d), cut ? size : x[d]);
    m.operand(0, cut ? DimExpr{start, {{f, step}}} : MapMaker::plain(f));
    m.result(0, cut ? size : x[d], f);
  }
  return std::move(m).done();
}

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const auto dim = static_cast<size_t>(a.attrs().i("dim"));
    const int64_t start = a.attrs().i("start"), step = a.attrs().i("step");
    for_each_index(shape_of(a.out[0]), [&](const Index& i) {
      Index from = i;
      from[dim] = start + step * i[dim];
      a.store_at(0, a.load_at(0, from), i);
    });
  }
};

Grads vjp(Builder&, const VjpCall& c) {
  const auto dim = static_cast<int>(c.attrs().i("dim"));
  int64_t start = c.attrs().i("start"), step = c.attrs().i("step");
  const Dim size = c.grad[0].dim(dim), n = c.in[0].dim(dim);
  if (size.bound() == 0) return {zeros_like(c.in[0])};
  Var g = c.grad[0];
  if (step < 0 && !size.is_const()) {  // where the last element lies differs from run to run
    const Var i = iota(g.builder(), {size}, 0, DType::kI64);
    return {scatter_add(g, i * static_cast<double>(step) + static_cast<double>(start), dim, n)};
  }
  if (step < 0) {  // reversed, the gradient is that of a forward slice
    g = slice(g, dim, size.bound() - 1, size, -1);
    start += step * (size.bound() - 1), step = -step;
  }
  return {pad_to(g, dim, start, n, step - 1, 0.0)};
}

// A part's operand holds just the elements it reads, in order.
Attrs localize(const OpCall& c, const DimMap&, int factor, int64_t lo, int64_t hi) {
  Attrs a = *c.attrs;
  if (factor == a.i("dim"))
    a.set("start", 0), a.set("step", 1), a.set("size", std::vector<Dim>{hi - lo});
  return a;
}
}  // namespace

constinit const OpDef slice_op = view_op({
    .name = "slice",
    .formula = "y[.., i, ..] = x[.., start + step i, ..]",
    .dims_fn = dims,
    .attrs = {{"dim", AttrKind::kInt, true, "which dim"},
              {"start", AttrKind::kInt, true, "first element"},
              {"size", AttrKind::kDims, true, "how many"},
              {"step", AttrKind::kInt, true, "distance; negative reverses"}},
    .vjp = vjp,
    .reference = reference_with_ints<Ref>,
    .samples =
        [] {
          const SampleInput x = {{DType::kF32, {3, 9}}};
          auto at = [](int64_t start, int64_t size, int64_t step) {
            return Attrs{
                {"dim", 1}, {"start", start}, {"size", std::vector<Dim>{size}}, {"step", step}};
          };
          return std::vector<Sample>{{"middle", {x}, at(2, 5, 1)},
                                     {"every third", {x}, at(1, 3, 3)},
                                     {"reversed", {x}, at(8, 9, -1)},
                                     {"nothing", {x}, at(0, 0, 1)},
                                     {"nothing, reversed", {x}, at(0, 0, -1)},
                                     {"a step past all sizes",
                                      {x},
                                      at(0, 1, int64_t{1} << 62),
                                      "step 4611686018427387904"},
                                     {"past the end", {x}, at(5, 5, 1), "elements 5 to 9"}};
        },
    .localize = localize,
    .is_rowwise = true,
});

}  // namespace tegula
