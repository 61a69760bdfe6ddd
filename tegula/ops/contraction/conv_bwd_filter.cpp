// The gradient of conv to w: w[d, c, k] = sum over n, o of x[n, c, stride o + dilation k - lo]
// y[n, d, o]: a contraction of the same unfolded view of x, over other dims.
#include "tegula/ops/common/convolution.h"

namespace tegula {

namespace {
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

constinit const OpDef conv_bwd_filter_op = convolution<'w'>({
    .name = "conv_bwd_filter",
    .formula = "w[d, c, k] = sum over n, o of x[n, c, stride o + dilation k - lo] y[n, d, o]",
    .attrs = window_attr_defs(AttrDef{"kernel", AttrKind::kInts, true, "spatial dims of w"}),
    .samples = samples,
});

}  // namespace tegula
