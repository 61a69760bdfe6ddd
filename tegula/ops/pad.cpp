// y = x surrounded (lo, hi) and interleaved (interior) along one dim with `value`: adjoint of
// slice.
#include "tegula/ops/elementwise.h"

namespace tegula {

namespace {
Result<DimMap> dims(const OpCall& c) {
  const Shape& x = c.shape(0);
  const int64_t dim = c.attrs->i("dim"), lo = c.attrs->i("lo"), hi = c.attrs->i("hi");
  const int64_t interior = c.attrs->i("interior");
  if (dim < 0 || dim >= x.rank() || lo < 0 || hi < 0 || interior < 0)
    return invalid_argument(cat("pad: dim ", dim, ", lo ", lo, ", hi ", hi, " of ", x));
  DimMap m;
  m.operands.emplace_back(), m.results.emplace_back(), m.result_shapes.emplace_back();
  for (int d = 0; d < x.rank(); ++d) {
    if (d != dim) {
      const auto f = static_cast<uint8_t>(m.add_factor(cat("d", d), x[d]));
      m.operands[0].push_back({0, {{f, 1}}});
      m.results[0].push_back({0, {{f, 1}}});
      m.result_shapes[0].push_back(x[d]);
      continue;
    }
    // The padded dim is read and written whole.
    Dim size = TEGULA_TRY(mul(x[d], interior + 1));
    size = TEGULA_TRY(add(size, x[d].bound() > 0 ? lo + hi - interior : lo + hi));
    m.operands[0].push_back({0, {}, true});
    m.results[0].push_back({0, {}, true});
    m.result_shapes[0].push_back(size);
  }
  m.finish();
  return m;
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
              {"value", AttrKind::kFloat, true, "what they hold"}},
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      const auto dim = static_cast<int>(c.attrs().i("dim"));
      return {
          slice(c.grad[0], dim, c.attrs().i("lo"), c.in[0].dim(dim), c.attrs().i("interior") + 1)};
    },
    .jvp = [](Builder&, const JvpCall& c) -> Grads {
      const auto& a = c.attrs();
      return {pad(c.tangent[0], static_cast<int>(a.i("dim")), a.i("lo"), a.i("hi"), a.i("interior"),
                  0.0)};
    },
    .reference = reference_of<Ref>,
    .samples =
        [] {
          const SampleInput x = {{DType::kF32, {3, 4}}};
          auto by = [](int64_t lo, int64_t hi, int64_t interior, double v) {
            return Attrs{
                {"dim", int64_t{1}}, {"lo", lo}, {"hi", hi}, {"interior", interior}, {"value", v}};
          };
          return std::vector<Sample>{{"around", {x}, by(2, 1, 0, 0.0)},
                                     {"between", {x}, by(0, 3, 2, 7.0)},
                                     {"negative", {x}, by(-1, 0, 0, 0.0), "lo -1"}};
        },
};

}  // namespace tegula
