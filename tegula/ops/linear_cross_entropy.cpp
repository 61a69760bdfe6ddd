// lse = log Σ_v exp(x·w_v), picked = x·w_target, without holding the logits of more than a tile.
#include "tegula/ops/linear_cross_entropy.h"

#include "tegula/ops/elementwise.h"

namespace tegula {

namespace {

// Tokens are x's leading dims, flattened by for_each_index.
struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const int last = a.in[0].rank - 1;
    const int64_t d = a.dim(0, last), v = a.dim(1, 0);
    std::vector<S> logits(static_cast<size_t>(v));
    for_each_index(shape_of(a.in[2]), [&](const Index& token) {
      S top = S(-HUGE_VAL);
      for (int64_t j = 0; j < v; ++j) {
        S acc = S(0.0);
        for (int64_t k = 0; k < d; ++k) {
          Index i = token;
          i[static_cast<size_t>(last)] = k;
          acc = scalar::fma(a.load_at(0, i), a.load(1, j, k), acc);
        }
        logits[static_cast<size_t>(j)] = acc;
        top = scalar::max(top, acc);
      }
      S sum = S(0.0);
      for (const S& l : logits) sum += scalar::exp(l - top);
      a.store_at(0, scalar::log(sum) + top, token);
      const int64_t t = a.load_i_at(2, token);
      a.store_at(1, t >= 0 && t < v ? logits[static_cast<size_t>(t)] : S(0.0), token);
    });
  }
};

int64_t flops(const OpCall& c) {
  const int64_t tokens = c.in[2].shape.numel(), v = c.shape(1)[0].bound(),
                d = c.shape(1)[1].bound();
  return tokens * (v * (2 * d + 4) + 2);
}

Grads vjp(Builder& b, const VjpCall& c) {
  auto g = b.emit_n(linear_cross_entropy_bwd_op, {},
                    std::vector<Var>{c.in[0], c.in[1], c.in[2], c.out[0], c.grad[0], c.grad[1]});
  return {g[0], g[1], Var()};
}

std::vector<Var> decompose(Builder&, const OpCall&, std::span<const Var> in) {
  const Var x = in[0], w = in[1];
  static constexpr std::string_view kSpecs[] = {"d, v d -> v", "a d, v d -> a v",
                                                "a b d, v d -> a b v", "a b c d, v d -> a b c v"};
  const Var logits = cast(dot(kSpecs[x.rank() - 1], x, w), accumulator(x.dtype()));
  const Var top = reduce_max(logits, {-1}, true);
  const Var lse = squeeze(log(reduce_sum(exp(logits - top), {-1}, true)) + top, -1);
  const Var index = iota(x.builder(), logits.shape(), logits.rank() - 1, in[2].dtype());
  const Var hit = eq(index, broadcast(unsqueeze(in[2], -1), logits.shape()));
  return {lse, reduce_sum(select(hit, logits, zeros_like(logits)), {-1})};
}

std::vector<Sample> samples() {
  auto f = [](Shape s) { return SampleInput{{DType::kF32, s}}; };
  SampleInput t{{DType::kI32, {2, 3}}, 0, 6};
  SampleInput ignored = t;
  ignored.values = {0, -100, 3, 6, 7, -1};
  SampleInput one{{DType::kI64, {5}}, 0, 3};
  return {{"batch", {f({2, 3, 4}), f({7, 4}), t}, {}},
          {"some ignored", {f({2, 3, 4}), f({7, 4}), ignored}, {}},
          {"flat", {f({5, 6}), f({4, 6}), one}, {}},
          {"widths differ", {f({5, 6}), f({4, 7}), one}, {}, "has d=7"}};
}

}  // namespace

LinearCrossEntropy linear_cross_entropy(Var x, Var w, Var targets, Loc loc) {
  const Var in[] = {x, w, targets};
  const auto out = x.builder().emit_n(linear_cross_entropy_op, {}, in, {}, loc);
  return {out[0], out[1]};
}

Var cross_entropy_loss(Var x, Var w, Var targets, Loc loc) {
  const LinearCrossEntropy ce = linear_cross_entropy(x, w, targets, loc);
  const Var counts = ge(targets, 0.0, loc);
  const Var loss = select(counts, ce.lse - ce.picked, zeros_like(ce.lse), loc);
  Var total = loss, n = cast(counts, DType::kF32, loc);
  while (total.rank() > 0) {
    total = reduce_sum(total, {total.rank() - 1}, false, loc);
    n = reduce_sum(n, {n.rank() - 1}, false, loc);
  }
  return div(total, max(n, 1.0, loc), loc);
}

constinit const OpDef linear_cross_entropy_op = {
    .name = "linear_cross_entropy",
    .formula = "lse = log sum_v exp(x w_v), picked = x w_target",
    .source = "Wijmans et al. 2024 (cut cross-entropy), section 4",
    .group = "loss",
    .dims_fn = [](const OpCall& c) -> Result<DimMap> {
      DimMap m = TEGULA_TRY(
          solve_dims("linear_cross_entropy", "x: ... d, w: v d, targets: ... -> ..., ...", c.in));
      m.factors[static_cast<size_t>(m.find("v"))].index_operand = 2;
      return m;
    },
    .types = "F, F, i -> A, A",
    .split = {{"v", Combine::kLogSumExp, 0}, {"v", Combine::kSum, 1}, {"d", Combine::kNever}},
    .flops = flops,
    .vjp = vjp,
    .decompose = decompose,
    .reference = reference_of<Ref>,
    .samples = samples,
    .precision = Precision::kLow,
};

}  // namespace tegula
