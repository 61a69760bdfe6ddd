// q = round(x / scale), scale = max |x| / 127 over everything but one dim: int8 with a scale for
// every channel.
#include "tegula/ops/quantise.h"

#include "tegula/ops/common/rules.h"

namespace tegula {

namespace {
Result<DimMap> dims(const OpCall& c) {
  const Shape& x = c.shape(0);
  const int64_t axis = c.attrs->i("axis");
  if (axis < 0 || axis >= x.rank())
    return invalid_argument(cat("quantise: axis ", axis, " of ", c.in[0]));
  MapMaker m(1, 2);
  for (int d = 0; d < x.rank(); ++d) {  // q needs the scale of the whole channel
    const uint8_t f = m.factor(cat("d", d), x[d], d != axis);
    m.operand(0, f), m.result(0, x[d], f);
    if (d == axis) m.result(1, x[d], f);
  }
  return std::move(m).done();
}

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const auto axis = static_cast<size_t>(a.attrs().i("axis"));
    std::vector<S> scale(static_cast<size_t>(a.out_dim(1, 0)), S(0.0));
    for_each_index(shape_of(a.in[0]), [&](const Index& i) {
      const S x = a.load_at(0, i);
      S& m = scale[static_cast<size_t>(i[axis])];
      m = scalar::max(m, scalar::max(x, -x));
    });
    for (size_t c = 0; c < scale.size(); ++c) {
      scale[c] = scale[c] * S(1.0 / 127);
      a.store_at(1, scale[c], {static_cast<int64_t>(c)});
    }
    for_each_index(shape_of(a.in[0]), [&](const Index& i) {
      const S s = scale[static_cast<size_t>(i[axis])];
      const S q = scalar::floor(a.load_at(0, i) / s + S(0.5));
      a.store_at(0, s > S(0.0) ? q : S(0.0), i);
    });
  }
};

std::vector<Var> decompose(Builder&, const OpCall& c, std::span<const Var> in) {
  const Var x = in[0];
  const auto axis = c.attrs->i("axis");
  std::vector<int64_t> others;
  for (int64_t d = 0; d < x.rank(); ++d)
    if (d != axis) others.push_back(d);
  const Var scale = reduce_max(abs(x), others, true) * (1.0 / 127);
  const Var q = select(gt(scale, 0.0), floor(x / scale + 0.5), zeros_like(x));
  return {cast(q, DType::kI8), reshape(scale, {x.dim(static_cast<int>(axis))})};
}
}  // namespace

Quantised quantise(Var x, int axis, Loc loc) {
  if (axis < 0) axis += x.rank();
  const auto out =
      x.builder().emit_n(quantise_op, {{"axis", int64_t{axis}}}, std::span(&x, 1), {}, loc);
  return {out[0], out[1]};
}

constinit const OpDef quantise_op = {
    .name = "quantise",
    .formula = "scale[a] = max |x[a, ..]| / 127, q = round(x / scale)",
    .source = "Jacob et al. 2018, section 2.1",
    .group = "quantisation",
    .dims_fn = dims,
    .types = "f32 -> i8, f32",
    .attrs = {{"axis", AttrKind::kInt, true, "the dim whose entries have a scale each"}},
    .flops = [](const OpCall& c) { return 6 * c.in[0].shape.numel() + c.out[1].shape.numel(); },
    .decompose = decompose,
    .reference = reference_of<Ref>,
    .samples =
        [] {
          const SampleInput x = {{DType::kF32, {3, 4, 2}}, -3, 3, {}, false};
          auto along = [](int64_t axis) { return Attrs{{"axis", axis}}; };
          Sample zeros{"a channel of zeros", {x}, along(0)};
          zeros.in[0].values = std::vector<double>(24, 0.0);
          zeros.in[0].values[9] = 1.5;
          return std::vector<Sample>{{"first", {x}, along(0)},
                                     {"last", {x}, along(2)},
                                     zeros,
                                     {"no such dim", {x}, along(3), "axis 3"}};
        },
};

}  // namespace tegula
