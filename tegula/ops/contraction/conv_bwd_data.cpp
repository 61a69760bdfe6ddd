// The gradient of conv to x: x[n, c, i] = sum over d, k of y[n, d, o] w[d, c, k] where
// stride o + dilation k - lo = i. As a convolution: y spread out by the stride, padded, against the
// reversed kernel; the zeros between are multiplied too, and counted.
#include "tegula/ops/common/windows.h"

namespace tegula {

namespace {
// Zeros before y once it is spread out, so that window i, element k' = kernel - 1 - k is y's o.
int64_t lead(const Window& w) { return w.reach() - w.lo; }

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const ConvShapes s = *conv_shapes(a.call, "yw");
    std::vector<int64_t> inner = {s.d};
    for (const Window& w : s.windows) inner.push_back(w.kernel);
    for_each_index(shape_of(a.out[0]), [&](const Index& x) {
      S acc = S(0.0);
      for_each_index(inner, [&](const Index& k) {
        const int64_t group = x[1] / s.c;
        Index y = {x[0], group * s.d + k[0]}, w = {y[1], x[1] % s.c};
        bool inside = true;
        for (size_t i = 0; i < s.windows.size(); ++i) {
          const Window& v = s.windows[i];
          const int64_t at = x[i + 2] + v.dilation * k[i + 1] - lead(v);
          w[i + 2] = v.kernel - 1 - k[i + 1], y[i + 2] = at / v.stride;
          inside &= at >= 0 && at % v.stride == 0 && y[i + 2] < s.out[i].bound();
        }
        acc = scalar::fma(inside ? a.load_at(0, y) : S(0.0), a.load_at(1, w), acc);
      });
      a.store_at(0, acc, x);
    });
  }
};

std::vector<Var> decompose(Builder& b, const OpCall& c, std::span<const Var> in) {
  auto shapes = conv_shapes(c, "yw");
  if (!shapes.ok()) return {b.fail(std::move(shapes).error())};
  const ConvShapes& s = *shapes;
  if (s.groups > 1 && s.rank() == 3) return conv_by_group(b, c, in, {1, s.d}, {0, s.d}, 1);
  Var y = in[0], w = in[1];
  std::vector<Window> windows;
  for (int i = 0; i < s.rank(); ++i) {
    const Window& v = s.windows[static_cast<size_t>(i)];
    const Dim size = s.size[static_cast<size_t>(i)], out = s.out[static_cast<size_t>(i)];
    w = slice(w, i + 2, v.kernel - 1, v.kernel, -1);
    // Spread out, y has stride (out - 1) + 1 elements; size + reach are wanted. A symbolic size and
    // out differ by a constant, as stride is 1 then.
    const int64_t before = lead(v);
    const int64_t after = size.bound() + v.reach() - before - (v.stride * (out.bound() - 1) + 1);
    y = pad(y, i + 2, std::max<int64_t>(before, 0), std::max<int64_t>(after, 0), v.stride - 1, 0.0);
    if (before < 0 || after < 0) {
      auto cut = add(size, v.reach());
      if (!cut.ok()) return {b.fail(std::move(cut).error())};
      y = slice(y, i + 2, std::max<int64_t>(-before, 0), *cut);
    }
    windows.push_back({1, 0, 0, v.dilation, v.kernel});
  }
  y = unfold_windows(y, windows, s.size);
  if (s.groups == 1) return {conv_dot(y, {"nd", "ik"}, w, {"dc", "k"}, {"nc", "i"}, s.rank())};
  return {join_groups(conv_dot(split_groups(y, 1, s.groups), {"ngd", "ik"},
                               split_groups(w, 0, s.groups), {"gdc", "k"}, {"ngc", "i"}, s.rank()),
                      1)};
}

std::vector<Sample> samples() {
  auto f = [](Shape s) { return SampleInput{{DType::kF32, s}}; };
  auto by = [](std::vector<Dim> size, ConvOptions o) {
    Attrs a = window_attrs(o, static_cast<int>(size.size()));
    a.set("groups", o.groups), a.set("size", size);
    return a;
  };
  ConvOptions plain, strided, grouped, over;
  strided.stride = {2, 3}, strided.lo = {1, 0}, strided.hi = {0, 2}, strided.dilation = {2, 1};
  grouped.groups = 2, grouped.lo = {1};
  over.lo = {2}, over.hi = {3}, over.stride = {2};
  return {{"1d", {f({2, 4, 5}), f({4, 3, 3})}, by({7}, plain)},
          {"strided and dilated", {f({1, 3, 2, 3}), f({3, 2, 3, 2})}, by({7, 8}, strided)},
          {"groups", {f({2, 6, 5}), f({6, 2, 3})}, by({6}, grouped)},
          {"more padding than kernel", {f({1, 2, 6}), f({2, 2, 1})}, by({6}, over)},
          {"3d", {f({1, 2, 2, 2, 2}), f({2, 1, 2, 2, 2})}, by({3, 3, 3}, plain)},
          {"size misfit", {f({2, 4, 5}), f({4, 3, 3})}, by({8}, plain), "y is [2,4,5]"}};
}
}  // namespace

constinit const OpDef conv_bwd_data_op = {
    .name = "conv_bwd_data",
    .formula = "x[n, c, i] = sum of y[n, d, o] w[d, c, k] where stride o + dilation k - lo = i",
    .source = "Dumoulin and Visin 2016, chapter 4",
    .group = "contraction",
    .dims_fn = [](const OpCall& c) { return conv_dims(c, "yw"); },
    .types = "F, F -> F",
    .attrs = window_attr_defs(AttrDef{"size", AttrKind::kDims, true, "spatial dims of x"}),
    .flops = [](const OpCall& c) { return conv_flops(c, "yw"); },
    .bytes = [](const OpCall& c) { return conv_bytes(c, "yw"); },
    .vjp = [](Builder& b, const VjpCall& c) -> Grads {
      const Var y = c.in[0], w = c.in[1];
      return {b.emit(conv_op, conv_attrs(c.attrs(), 'y', {}), {c.grad[0], w}),
              b.emit(conv_bwd_filter_op, conv_attrs(c.attrs(), 'w', w.shape()), {c.grad[0], y})};
    },
    .decompose = decompose,
    .reference = reference_of<Ref>,
    .samples = samples,
    .localize = conv_localize,
    .is_multilinear = true,
    .precision = Precision::kLow,
};

}  // namespace tegula
