// dx, dw of linear_cross_entropy: logits are computed again, a tile at a time.
//   g_v = dlse·exp(x·w_v − lse) + dpicked·[v = target];  dx = Σ_v g_v w_v;  dw_v = Σ_tokens g_v x
#include "tegula/ops/elementwise.h"

namespace tegula {

namespace {

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const int last = a.in[0].rank - 1;
    const int64_t d = a.dim(0, last), v = a.dim(1, 0);
    std::vector<S> g(static_cast<size_t>(v)), dw(static_cast<size_t>(v * d), S(0.0));
    for_each_index(shape_of(a.in[2]), [&](const Index& token) {
      auto x = [&](int64_t k) {
        Index i = token;
        i[static_cast<size_t>(last)] = k;
        return a.load_at(0, i);
      };
      const S lse = a.load_at(3, token), dlse = a.load_at(4, token), dpicked = a.load_at(5, token);
      for (int64_t j = 0; j < v; ++j) {
        S acc = S(0.0);
        for (int64_t k = 0; k < d; ++k) acc = scalar::fma(x(k), a.load(1, j, k), acc);
        g[static_cast<size_t>(j)] = dlse * scalar::exp(acc - lse);
      }
      const int64_t t = a.load_i_at(2, token);
      S at_target = t >= 0 && t < v ? g[static_cast<size_t>(t)] : S(0.0);
      at_target += dpicked;  // done for every token, so that the count depends on shapes alone
      if (t >= 0 && t < v) g[static_cast<size_t>(t)] = at_target;
      for (int64_t k = 0; k < d; ++k) {
        S acc = S(0.0);
        for (int64_t j = 0; j < v; ++j) {
          const S& gj = g[static_cast<size_t>(j)];
          acc = scalar::fma(gj, a.load(1, j, k), acc);
          S& w = dw[static_cast<size_t>(j * d + k)];
          w = scalar::fma(gj, x(k), w);
        }
        Index i = token;
        i[static_cast<size_t>(last)] = k;
        a.store_at(0, acc, i);
      }
    });
    for (int64_t j = 0; j < v; ++j)
      for (int64_t k = 0; k < d; ++k) a.store(1, dw[static_cast<size_t>(j * d + k)], j, k);
  }
};

int64_t flops(const OpCall& c) {
  const int64_t tokens = c.in[2].shape.numel(), v = c.shape(1)[0].bound(),
                d = c.shape(1)[1].bound();
  return tokens * (v * (6 * d + 3) + 1);
}

std::vector<Var> decompose(Builder&, const OpCall&, std::span<const Var> in) {
  const Var x = in[0], w = in[1], targets = in[2];
  static constexpr std::string_view kLogits[] = {"d, v d -> v", "a d, v d -> a v",
                                                 "a b d, v d -> a b v", "a b c d, v d -> a b c v"};
  static constexpr std::string_view kDx[] = {"v, v d -> d", "a v, v d -> a d",
                                             "a b v, v d -> a b d", "a b c v, v d -> a b c d"};
  static constexpr std::string_view kDw[] = {"v, d -> v d", "a v, a d -> v d",
                                             "a b v, a b d -> v d", "a b c v, a b c d -> v d"};
  const auto r = static_cast<size_t>(x.rank() - 1);
  const Var logits = cast(dot(kLogits[r], x, w), accumulator(x.dtype()));
  const Var p = exp(logits - unsqueeze(in[3], -1));
  const Var index = iota(x.builder(), logits.shape(), logits.rank() - 1, targets.dtype());
  const Var hit = eq(index, broadcast(unsqueeze(targets, -1), logits.shape()));
  const Var at_target =
      select(hit, broadcast(unsqueeze(in[5], -1), logits.shape()), zeros_like(logits));
  const Var g = cast(p * unsqueeze(in[4], -1) + at_target, x.dtype());
  return {dot(kDx[r], g, w), dot(kDw[r], g, x)};
}

std::vector<Sample> samples() {
  auto f = [](Shape s) { return SampleInput{{DType::kF32, s}}; };
  SampleInput t{{DType::kI32, {2, 3}}, 0, 6};
  SampleInput ignored = t;
  ignored.values = {0, -100, 3, 6, 7, -1};
  return {
      {"batch", {f({2, 3, 4}), f({7, 4}), t, f({2, 3}), f({2, 3}), f({2, 3})}, {}},
      {"some ignored", {f({2, 3, 4}), f({7, 4}), ignored, f({2, 3}), f({2, 3}), f({2, 3})}, {}}};
}

}  // namespace

constinit const OpDef linear_cross_entropy_bwd_op = {
    .name = "linear_cross_entropy_bwd",
    .formula = "g = dlse exp(x w - lse) + dpicked [target]; dx = g w, dw = g x",
    .group = "loss",
    .dims_fn = [](const OpCall& c) -> Result<DimMap> {
      DimMap m = TEGULA_TRY(solve_dims(
          "linear_cross_entropy_bwd",
          "x: ... d, w: v d, targets: ..., lse: ..., dlse: ..., dpicked: ... -> ... d, v d", c.in));
      m.factors[static_cast<size_t>(m.find("v"))].index_operand = 2;
      return m;
    },
    .types = "F, F, i, A, A, A -> F, F",
    .split = {{"d", Combine::kNever}},
    .flops = flops,
    .decompose = decompose,
    .reference = reference_of<Ref>,
    .samples = samples,
    .precision = Precision::kLow,
};

}  // namespace tegula
