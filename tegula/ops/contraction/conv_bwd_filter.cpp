// The gradient of conv to w: w[d, c, k] = sum over n, o of x[n, c, stride o + dilation k - lo]
// y[n, d, o]: a contraction of the same unfolded view of x, over other dims.
#include "tegula/ops/common/windows.h"

namespace tegula {

namespace {
struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const ConvShapes s = *conv_shapes(a.call, "xy");
    std::vector<int64_t> inner = {s.n.bound()};
    for (const Dim& o : s.out) inner.push_back(o.bound());
    for_each_index(shape_of(a.out[0]), [&](const Index& w) {
      S acc = S(0.0);
      for_each_index(inner, [&](const Index& o) {
        Index x = {o[0], w[0] / s.d * s.c + w[1]}, y = {o[0], w[0]};
        bool inside = true;
        for (size_t i = 0; i < s.windows.size(); ++i) {
          x[i + 2] = s.windows[i].at(o[i + 1], w[i + 2]), y[i + 2] = o[i + 1];
          inside &= x[i + 2] >= 0 && x[i + 2] < s.size[i].bound();
        }
        acc = scalar::fma(inside ? a.load_at(0, x) : S(0.0), a.load_at(1, y), acc);
      });
      a.store_at(0, acc, w);
    });
  }
};

std::vector<Var> decompose(Builder& b, const OpCall& c, std::span<const Var> in) {
  auto shapes = conv_shapes(c, "xy");
  if (!shapes.ok()) return {b.fail(std::move(shapes).error())};
  const ConvShapes& s = *shapes;
  if (s.groups == 1)
    return {conv_dot(unfold_windows(in[0], s.windows, s.out), {"nc", "ok"}, in[1], {"nd", "o"},
                     {"dc", "k"}, s.rank())};
  if (s.rank() < 3)
    return {join_groups(
        conv_dot(split_groups(unfold_windows(in[0], s.windows, s.out), 1, s.groups), {"ngc", "ok"},
                 split_groups(in[1], 1, s.groups), {"ngd", "o"}, {"gdc", "k"}, s.rank()),
        0)};
  return conv_by_group(b, c, in, {1, s.c}, {1, s.d}, 0);
}

std::vector<Sample> samples() {
  auto f = [](Shape s) { return SampleInput{{DType::kF32, s}}; };
  auto by = [](std::vector<int64_t> kernel, ConvOptions o) {
    Attrs a = window_attrs(o, static_cast<int>(kernel.size()));
    a.set("groups", o.groups), a.set("kernel", kernel);
    return a;
  };
  ConvOptions plain, strided, grouped;
  strided.stride = {2, 3}, strided.lo = {1, 0}, strided.hi = {0, 2}, strided.dilation = {2, 1};
  grouped.groups = 2, grouped.lo = {1};
  return {{"1d", {f({2, 3, 7}), f({2, 4, 5})}, by({3}, plain)},
          {"strided and dilated", {f({2, 2, 7, 8}), f({2, 3, 2, 3})}, by({3, 2}, strided)},
          {"groups", {f({2, 4, 6}), f({2, 6, 5})}, by({3}, grouped)},
          {"3d", {f({1, 2, 3, 3, 2}), f({1, 2, 2, 2, 1})}, by({2, 2, 2}, plain)},
          {"y too large", {f({2, 3, 7}), f({2, 4, 6})}, by({3}, plain), "y is [2,4,6]"}};
}
}  // namespace

constinit const OpDef conv_bwd_filter_op = {
    .name = "conv_bwd_filter",
    .formula = "w[d, c, k] = sum over n, o of x[n, c, stride o + dilation k - lo] y[n, d, o]",
    .group = "contraction",
    .dims_fn = [](const OpCall& c) { return conv_dims(c, "xy"); },
    .types = "F, F -> F",
    .attrs = window_attr_defs(AttrDef{"kernel", AttrKind::kInts, true, "spatial dims of w"}),
    .flops = [](const OpCall& c) { return conv_flops(c, "xy"); },
    .bytes = [](const OpCall& c) { return conv_bytes(c, "xy"); },
    .vjp = [](Builder& b, const VjpCall& c) -> Grads {
      const Var x = c.in[0], y = c.in[1];
      return {b.emit(conv_bwd_data_op, conv_attrs(c.attrs(), 'x', x.shape()), {y, c.grad[0]}),
              b.emit(conv_op, conv_attrs(c.attrs(), 'y', {}), {x, c.grad[0]})};
    },
    .decompose = decompose,
    .reference = reference_of<Ref>,
    .samples = samples,
    .localize = conv_localize,
    .is_multilinear = true,
    .precision = Precision::kLow,
};

}  // namespace tegula
