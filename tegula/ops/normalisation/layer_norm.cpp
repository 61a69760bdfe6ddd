// y = (x - mean) rstd w + b over the last dim; also gives mean and rstd = 1/sqrt(var + eps).
#include "tegula/ops/common/rows.h"
#include "tegula/ops/norm.h"

namespace tegula {

namespace {
constexpr double kEps = 1e-5;
double eps_of(const Attrs& a) { return a.get_or<double>("eps", kEps); }

Result<DimMap> dims(const OpCall& c) {
  const bool bias = c.attrs->flag("bias");
  if (c.in.size() != (bias ? 3u : 2u))
    return invalid_argument(cat("layer_norm: got ", c.in.size(), " operands, takes x, weight",
                                bias ? ", bias" : " (and bias if attribute bias is set)"));
  return solve_dims("layer_norm",
                    bias ? "x: ... d, weight: d, bias: d -> ... d, ..., ..."
                         : "x: ... d, weight: d -> ... d, ..., ...",
                    c.in);
}

// Two passes: the variance is of x - mean, so that a large mean does not cancel it.
struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const TensorRef& x = a.in[0];
    const bool bias = a.attrs().flag("bias");
    const S eps = S(eps_of(a.attrs()));
    const S share = S(1.0 / static_cast<double>(x.shape[x.rank - 1]));
    for_each_row(x, [&](Index& i) {
      S mean = S(0.0), var = S(0.0);
      for_each_in_row(x, i, [&](const Index& at, size_t) { mean += a.load_at(0, at); });
      mean = mean * share;
      for_each_in_row(x, i, [&](const Index& at, size_t) {
        const S centred = a.load_at(0, at) - mean;
        var = scalar::fma(centred, centred, var);
      });
      const S rstd = S(1.0) / scalar::sqrt(var * share + eps);
      for_each_in_row(x, i, [&](const Index& at, size_t j) {
        S y = (a.load_at(0, at) - mean) * rstd * a.load(1, j);
        if (bias) y = y + a.load(2, j);
        a.store_at(0, y, at);
      });
      a.store_at(1, mean, i);
      a.store_at(2, rstd, i);
    });
  }
};

int64_t flops(const OpCall& c) {
  const int64_t d = row_size(c.in[0]);
  return row_count(c.in[0]) * ((c.attrs->flag("bias") ? 8 : 7) * d + 5);
}

Grads vjp(Builder& b, const VjpCall& c) {
  const bool bias = c.attrs().flag("bias");
  const Var in[] = {c.in[0], c.in[1], c.out[1], c.out[2], c.grad[0]};
  auto g = b.emit_n(layer_norm_bwd_op, {{"bias", bias}}, in);
  // d mean/dx = 1/d; d rstd/dx = -rstd^3 (x - mean)/d.
  if (!is_zero(c.grad[1]) || !is_zero(c.grad[2])) {
    const Var rstd = unsqueeze(c.out[2], -1), mean = unsqueeze(c.out[1], -1);
    const Var x = cast(c.in[0], rstd.dtype());
    const Var slope = unsqueeze(c.grad[2], -1) * rstd * rstd * rstd;
    const Var dx = (unsqueeze(c.grad[1], -1) - slope * (x - mean)) / extent(x, -1, x.dtype());
    g[0] = g[0] + cast(dx, c.in[0].dtype());
  }
  return bias ? Grads{g[0], g[1], g[2]} : Grads{g[0], g[1]};
}

std::vector<Var> decompose(Builder&, const OpCall& c, std::span<const Var> in) {
  const DType type = in[0].dtype(), sums = accumulator(type);
  const Var x = cast(in[0], sums);
  const Var mean = reduce_mean(x, {-1}, true);
  const Var centred = x - mean;
  const Var rstd = rsqrt(reduce_mean(centred * centred, {-1}, true) + eps_of(*c.attrs));
  Var y = centred * rstd * cast(in[1], sums);
  if (in.size() == 3) y = y + cast(in[2], sums);
  return {cast(y, type), squeeze(mean, -1), squeeze(rstd, -1)};
}

std::vector<Sample> samples() {
  const SampleInput d = {{DType::kF32, {6}}};
  auto x = [](Shape s, double low, double high) {
    return SampleInput{{DType::kF32, s}, low, high};
  };
  const Attrs plain{{"eps", 1e-5}}, bias{{"eps", 1e-5}, {"bias", true}};
  return {
      {"rows", {x({4, 6}, -1, 1), d, d}, bias},
      {"no bias", {x({2, 3, 6}, -1, 1), d}, plain},
      {"one row", {x({6}, -1, 1), d}, plain},
      {"far from zero", {x({3, 6}, 1000, 1001), d, d}, bias},
      {"constant row", {{{DType::kF32, {1, 6}}, 0.5, 0.5}, d, d}, {{"eps", 0.1}, {"bias", true}}},
      {"no rows", {x({0, 6}, -1, 1), d}, plain},
      {"bf16", {{{DType::kBF16, {4, 6}}}, {{DType::kBF16, {6}}}}, plain},
      {"weight misfits", {x({4, 5}, -1, 1), d}, plain, "weight has d=6, x has d=5"},
      {"bias not announced", {x({4, 6}, -1, 1), d, d}, plain, "got 3 operands"}};
}
}  // namespace

Var layer_norm(Var x, Var weight, Var bias, double eps, Loc loc) {
  std::vector<Var> in = {x, weight};
  if (bias.valid()) in.push_back(bias);
  return x.builder().emit_n(layer_norm_op, {{"eps", eps}, {"bias", bias.valid()}}, in, {}, loc)[0];
}

constinit const OpDef layer_norm_op = norm_op({
    .name = "layer_norm",
    .formula = "y = (x - mean) rstd w + b, rstd = 1/sqrt(var + eps)",
    .source = "Ba et al. 2016, section 3",
    .dims_fn = dims,
    .types = "F, F, F? -> F, A, A",
    .attrs = {{"eps", AttrKind::kFloat, false, "added to the variance; 1e-5 if absent"},
              {"bias", AttrKind::kBool, false, "a third operand is added"}},
    .flops = flops,
    .bytes = row_bytes,
    .vjp = vjp,
    .decompose = decompose,
    .reference = reference_of<Ref>,
    .samples = samples,
    .is_rowwise = true,
});

}  // namespace tegula
