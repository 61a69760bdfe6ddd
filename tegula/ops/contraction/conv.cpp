// Convolution (cross-correlation) over 1 to 3 spatial dims. It has no kernel of its own: unfolded
// windows are a strided view, and a contraction of that view with w is a convolution, whose packing
// reads x directly (an implicit im2col).
#include "tegula/ops/common/convolution.h"

namespace tegula {

namespace {
std::vector<Sample> samples() {
  auto f = [](Shape s) { return SampleInput{{DType::kF32, s}}; };
  auto by = [](int rank, ConvOptions o) {
    Attrs a = window_attrs(o, rank);
    a.set("groups", o.groups);
    return a;
  };
  ConvOptions plain, same, strided, grouped, depthwise, wide;
  same.lo = same.hi = {1, 1};
  strided.stride = {2, 3}, strided.lo = {1, 0}, strided.hi = {0, 2}, strided.dilation = {2, 1};
  grouped.groups = 2, grouped.lo = {1};
  depthwise.groups = 4;
  wide.lo = {1, 0, 1}, wide.stride = {1, 2, 1};
  return {{"1d", {f({2, 3, 7}), f({4, 3, 3})}, by(1, plain)},
          {"2d, padded to the same size", {f({2, 3, 5, 4}), f({2, 3, 3, 3})}, by(2, same)},
          {"strided and dilated", {f({1, 2, 7, 8}), f({3, 2, 3, 2})}, by(2, strided)},
          {"groups", {f({2, 4, 6}), f({6, 2, 3})}, by(1, grouped)},
          {"depthwise", {f({1, 4, 5, 4}), f({4, 1, 2, 2})}, by(2, depthwise)},
          {"3d", {f({1, 2, 3, 5, 3}), f({2, 2, 2, 2, 2})}, by(3, wide)},
          {"3d, groups", {f({1, 4, 3, 3, 2}), f({4, 2, 2, 2, 1})}, by(3, {{}, 2})},
          {"1 by 1", {f({2, 3, 4, 4}), f({5, 3, 1, 1})}, by(2, plain)},
          {"channels", {f({2, 4, 7}), f({4, 3, 3})}, by(1, plain), "x is [2,4,7], must be [2,3,7]"},
          {"groups misfit", {f({2, 4, 6}), f({5, 2, 3})}, by(1, grouped), "do not divide 5"},
          {"too small", {f({2, 3, 2}), f({4, 3, 3})}, by(1, plain), "does not fit 2"},
          {"a dilation past all sizes",
           {f({2, 3, 7}), f({4, 3, 3})},
           by(1, {{{}, {}, {}, {(int64_t{1} << 62) - 1000}}}),
           "dilation is 4611686018427386904"},
          {"a reach past all sizes",
           {f({2, 3, 7}), f({4, 3, 3})},
           by(1, {{{}, {}, {}, {kMaxElements}}}),
           "does not fit 7"},
          {"ranks", {f({2, 3, 7}), f({4, 3, 3, 3})}, by(1, plain), "3, 4 or 5 dims"}};
}
}  // namespace

Var conv(Var x, Var w, const ConvOptions& options, Loc loc) {
  Attrs attrs = window_attrs(options, std::max(x.rank() - 2, 1));
  attrs.set("groups", options.groups);
  return x.builder().emit(conv_op, std::move(attrs), {x, w}, loc);
}

constinit const OpDef conv_op = convolution<'y'>({
    .name = "conv",
    .formula = "y[n, d, o] = sum over c, k of x[n, c, stride o + dilation k - lo] w[d, c, k]",
    .source = "LeCun et al. 1989; implicit im2col: Chetlur et al. 2014, section 3",
    .attrs = window_attr_defs(),
    .samples = samples,
});

}  // namespace tegula
