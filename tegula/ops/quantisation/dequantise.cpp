// x = q scale, with a scale for every entry of one dim.
#include "tegula/ops/common/rules.h"
#include "tegula/ops/quantise.h"

namespace tegula {

namespace {
Result<DimMap> dims(const OpCall& c) {
  const Shape& q = c.shape(0);
  const int64_t axis = c.attrs->i("axis");
  if (axis < 0 || axis >= q.rank() || c.in.size() != 2 || c.shape(1).rank() != 1 ||
      !(c.shape(1)[0] == q[static_cast<int>(axis)]))
    return invalid_argument(cat("dequantise: axis ", axis, " of ", c.in[0], " with scale ",
                                c.in.size() > 1 ? cat(c.in[1]) : std::string("missing")));
  MapMaker m(2);
  for (int d = 0; d < q.rank(); ++d) {
    const uint8_t f = m.factor(cat("d", d), q[d]);
    m.operand(0, f), m.result(0, q[d], f);
    if (d == axis) m.operand(1, f);
  }
  return std::move(m).done();
}

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const auto axis = static_cast<size_t>(a.attrs().i("axis"));
    for_each_index(shape_of(a.out[0]),
                   [&](const Index& i) { a.store_at(0, a.load_at(0, i) * a.load(1, i[axis]), i); });
  }
};

// scale, shaped so that it broadcasts against q.
Var along(Var scale, Var q, int64_t axis) {
  Shape s;
  for (int d = 0; d < q.rank(); ++d) s.push_back(d == axis ? q.dim(d) : Dim(1));
  return broadcast(reshape(scale, s), q.shape());
}
}  // namespace

Var dequantise(Var q, Var scale, int axis, Loc loc) {
  if (axis < 0) axis += q.rank();
  return q.builder().emit(dequantise_op, {{"axis", int64_t{axis}}}, {q, scale}, loc);
}

constinit const OpDef dequantise_op = {
    .name = "dequantise",
    .formula = "x = q scale",
    .source = "Jacob et al. 2018, section 2.1",
    .group = "quantisation",
    .dims_fn = dims,
    .types = "i8, f32 -> f32",
    .attrs = {{"axis", AttrKind::kInt, true, "the dim whose entries have a scale each"}},
    .flops = per_element<1>,
    .decompose = [](Builder&, const OpCall& c, std::span<const Var> in) -> Grads {
      return {cast(in[0], DType::kF32) * along(in[1], in[0], c.attrs->i("axis"))};
    },
    .reference = reference_of<Ref>,
    .samples =
        [] {
          const SampleInput q = {{DType::kI8, {3, 4}}, -127, 127}, s = {{DType::kF32, {4}}, 0, 2};
          return std::vector<Sample>{{"columns", {q, s}, {{"axis", int64_t{1}}}},
                                     {"misfit", {q, s}, {{"axis", int64_t{0}}}, "axis 0"}};
        },
};

}  // namespace tegula
