// Gradients of layer_norm: with xhat = (x - mean) rstd and g = w dy,
//   dx = rstd (g - mean(g) - xhat mean(xhat g)), dw = the sum of dy xhat, db = the sum of dy.
// With `residual`, what else reaches x is added to dx. Sums over rows are one ascending chain per
// element of w.
#include "tegula/ops/common/rows.h"

namespace tegula {

namespace {
Result<DimMap> dims(const OpCall& c) {
  constexpr std::string_view kIn = "x: ... d, weight: d, mean: ..., rstd: ..., dy: ... d";
  return solve_dims("layer_norm_bwd",
                    cat(kIn, c.attrs->flag("residual") ? ", residual: ... d" : "",
                        c.attrs->flag("bias") ? " -> ... d, d, d" : " -> ... d, d"),
                    c.in);
}

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const TensorRef& x = a.in[0];
    const auto d = static_cast<size_t>(x.shape[x.rank - 1]);
    const bool bias = a.attrs().flag("bias"), residual = a.attrs().flag("residual");
    const S share = S(1.0 / static_cast<double>(d));
    std::vector<S> xhat(d), g(d), dw(d, S(0.0)), db(d, S(0.0));
    for_each_row(x, [&](Index& i) {
      const S mean = a.load_at(2, i), rstd = a.load_at(3, i);
      S along = S(0.0), level = S(0.0);
      for_each_in_row(x, i, [&](const Index& at, size_t j) {
        const S dy = a.load_at(4, at);
        xhat[j] = (a.load_at(0, at) - mean) * rstd;
        g[j] = a.load(1, j) * dy;
        along = scalar::fma(xhat[j], g[j], along);
        level += g[j];
        dw[j] = scalar::fma(dy, xhat[j], dw[j]);
        if (bias) db[j] += dy;
      });
      along = along * share, level = level * share;
      for_each_in_row(x, i, [&](const Index& at, size_t j) {
        S dx = rstd * (g[j] - scalar::fma(xhat[j], along, level));
        if (residual) dx += a.load_at(5, at);
        a.store_at(0, dx, at);
      });
    });
    for (size_t j = 0; j < d; ++j) {
      a.store(1, dw[j], j);
      if (bias) a.store(2, db[j], j);
    }
  }
};

int64_t flops(const OpCall& c) {
  const int64_t d = row_size(c.in[0]);
  const int64_t each = 12 + c.attrs->flag("bias") + c.attrs->flag("residual");
  return row_count(c.in[0]) * (each * d + 2);
}

std::vector<Var> decompose(Builder&, const OpCall& c, std::span<const Var> in) {
  const DType type = in[0].dtype(), sums = accumulator(type);
  const Var dy = cast(in[4], sums), rstd = unsqueeze(in[3], -1);
  const Var xhat = (cast(in[0], sums) - unsqueeze(in[2], -1)) * rstd;
  const Var g = cast(in[1], sums) * dy;
  const Var along = reduce_mean(xhat * g, {-1}, true), level = reduce_mean(g, {-1}, true);
  Var dx = rstd * (g - (xhat * along + level));
  if (c.attrs->flag("residual")) dx = dx + cast(in[5], sums);

  const Shape d = in[1].shape();
  std::vector<Var> out = {cast(dx, type), cast(reduce_to(dy * xhat, d), type)};
  if (c.attrs->flag("bias")) out.push_back(cast(reduce_to(dy, d), type));
  return out;
}

std::vector<Sample> samples() {
  auto in = [](Shape x, Shape rows, DType t, DType sums) {
    return std::vector<SampleInput>{
        {{t, x}}, {{t, {5}}}, {{sums, rows}}, {{sums, rows}, 0.5, 2}, {{t, x}}};
  };
  const auto f32 = DType::kF32;
  auto added = in({2, 3, 5}, {2, 3}, f32, f32);
  added.push_back(added[0]);
  auto bad = in({4, 5}, {4}, f32, f32);
  bad[2].type.shape = {3};
  return {{"rows", in({4, 5}, {4}, f32, f32), {{"bias", true}}},
          {"no bias", in({2, 3, 5}, {2, 3}, f32, f32), {}},
          {"residual", added, {{"residual", true}}},
          {"residual and bias", added, {{"residual", true}, {"bias", true}}},
          {"one row", in({5}, {}, f32, f32), {}},
          {"no rows", in({0, 5}, {0}, f32, f32), {}},
          {"bf16", in({4, 5}, {4}, DType::kBF16, f32), {{"bias", true}}},
          {"mean misfits", bad, {}, "mean has ...0=3"}};
}
}  // namespace

constinit const OpDef layer_norm_bwd_op = norm_op({
    .name = "layer_norm_bwd",
    .formula = "dx = rstd (g - mean(g) - xhat mean(xhat g)), g = w dy",
    .source = "Ba et al. 2016, section 3",
    .dims_fn = dims,
    .types_fn = [](const OpCall& c) -> Result<std::vector<DType>> {
      const size_t n = c.attrs->flag("residual") ? 6 : 5;
      if (c.in.size() != n)
        return invalid_argument(cat("layer_norm_bwd: takes ", n, " operands, got ", c.in.size()));
      const DType t = c.in[0].dtype;
      const DType want[] = {t, t, accumulator(t), accumulator(t), t, t};
      for (size_t k = 0; k < n; ++k)
        if (!is_float(t) || c.in[k].dtype != want[k])
          return invalid_argument(
              cat("layer_norm_bwd: operand ", k, " is ", c.in[k].dtype, ", expected ", want[k]));
      return std::vector<DType>(c.attrs->flag("bias") ? 3 : 2, t);
    },
    .attrs = {{"bias", AttrKind::kBool, false, "also gives the bias's gradient"},
              {"residual", AttrKind::kBool, false, "a sixth operand is added to dx"}},
    .flops = flops,
    .bytes = row_bytes,
    .decompose = decompose,
    .reference = reference_of<Ref>,
    .samples = samples,
    .aliases = {{5, 0}},
});

}  // namespace tegula
