// The gradient of conv to x: x[n, c, i] = sum over d, k of y[n, d, o] w[d, c, k] where
// stride o + dilation k - lo = i. As a convolution: y spread out by the stride, padded, against the
// reversed kernel; the zeros between are multiplied too, and counted.
#include "tegula/ops/common/convolution.h"

namespace tegula {

namespace {
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

constinit const OpDef conv_bwd_data_op = convolution<'x'>({
    .name = "conv_bwd_data",
    .formula = "x[n, c, i] = sum of y[n, d, o] w[d, c, k] where stride o + dilation k - lo = i",
    .source = "Dumoulin and Visin 2016, chapter 4",
    .attrs = window_attr_defs(AttrDef{"size", AttrKind::kDims, true, "spatial dims of x"}),
    .samples = samples,
});

}  // namespace tegula
