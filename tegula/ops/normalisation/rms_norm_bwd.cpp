// Gradients of rms_norm: with xhat = x rstd and g = w dy,
//   dx = rstd (g - xhat mean(xhat g)), dw = the sum of dy xhat.
// Sums over rows are one ascending chain per element of w.
#include "tegula/ops/common/rows.h"

namespace tegula {

namespace {
struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const TensorRef& x = a.in[0];
    const auto d = static_cast<size_t>(x.shape[x.rank - 1]);
    const S share = S(1.0 / static_cast<double>(d));
    std::vector<S> xhat(d), g(d), dw(d, S(0.0));
    for_each_row(x, [&](Index& i) {
      const S rstd = a.load_at(2, i);
      S along = S(0.0);
      for_each_in_row(x, i, [&](const Index& at, size_t j) {
        const S dy = a.load_at(3, at);
        xhat[j] = a.load_at(0, at) * rstd;
        g[j] = a.load(1, j) * dy;
        along = scalar::fma(xhat[j], g[j], along);
        dw[j] = scalar::fma(dy, xhat[j], dw[j]);
      });
      along = along * share;
      for_each_in_row(x, i, [&](const Index& at, size_t j) {
        a.store_at(0, rstd * (g[j] - xhat[j] * along), at);
      });
    });
    for (size_t j = 0; j < d; ++j) a.store(1, dw[j], j);
  }
};

std::vector<Var> decompose(Builder&, const OpCall&, std::span<const Var> in) {
  const DType type = in[0].dtype(), sums = accumulator(type);
  const Var dy = cast(in[3], sums), rstd = unsqueeze(in[2], -1);
  const Var xhat = cast(in[0], sums) * rstd;
  const Var g = cast(in[1], sums) * dy;
  const Var dx = rstd * (g - xhat * reduce_mean(xhat * g, {-1}, true));
  const Shape d = in[1].shape();
  return {cast(dx, type), cast(reduce_to(dy * xhat, d), type)};
}

std::vector<Sample> samples() {
  auto in = [](Shape x, Shape rows, DType t = DType::kF32) {
    return std::vector<SampleInput>{{{t, x}}, {{t, {5}}}, {{DType::kF32, rows}, 0.5, 2}, {{t, x}}};
  };
  return {{"rows", in({2, 3, 5}, {2, 3}), {}},
          {"one row", in({5}, {}), {}},
          {"no rows", in({0, 5}, {0}), {}},
          {"bf16", in({4, 5}, {4}, DType::kBF16), {}},
          {"rstd misfits", in({4, 5}, {3}), {}, "rstd has ...0=3"}};
}
}  // namespace

constinit const OpDef rms_norm_bwd_op = norm_op({
    .name = "rms_norm_bwd",
    .formula = "dx = rstd (g - xhat mean(xhat g)), g = w dy, xhat = x rstd",
    .source = "Zhang and Sennrich 2019, section 3",
    .dims = "x: ... d, weight: d, rstd: ..., dy: ... d -> ... d, d",
    .types = "F, F, A, F -> F, F",
    .flops = [](const OpCall& c) { return row_count(c.in[0]) * (9 * row_size(c.in[0]) + 1); },
    .bytes = row_bytes,
    .decompose = decompose,
    .reference = reference_of<Ref>,
    .samples = samples,
});

}  // namespace tegula
