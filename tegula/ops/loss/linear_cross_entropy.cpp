// Per token of x: the log-sum-exp of its logits x W^T and the logit of its target, one token's
// logits at a time.
#include "tegula/base/saturating.h"
#include "tegula/ops/common/cross_entropy_call.h"

namespace tegula {

namespace {
Result<DimMap> dims(const OpCall& c) {
  return cross_entropy_dims(c, "x: ... d, w: W, targets: ... -> ..., ...");
}

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    std::vector<S> logits(static_cast<size_t>(CrossEntropyCall(a.call).v));
    for_each_row(a.in[0], [&](Index& i) { store_sums(a, i, logits, logits_of(a, i, logits)); });
  }
};

int64_t flops(const OpCall& c) {
  const CrossEntropyCall call(c);
  return (Count(call.tokens) * (Count(call.v) * (2 * call.d + 4) + 2)).n;
}

Grads vjp(Builder& b, const VjpCall& c) {
  const Var in[] = {c.in[0], c.in[1], c.in[2], c.out[0], c.grad[0], c.grad[1]};
  const auto g = b.emit_n(linear_cross_entropy_bwd_op, c.attrs(), in);
  return {g[0], g[1], Var()};
}

std::vector<Var> decompose(Builder&, const OpCall& c, std::span<const Var> in) {
  const CrossEntropyGraph g = cross_entropy_graph(c, in);
  const Var picked = select(g.picked, g.logits, zeros_like(g.logits));
  return {logsumexp(g.logits), reduce_sum(picked, {-1})};
}

std::vector<Sample> samples() {
  auto in = [](Shape x, Shape w, std::vector<double> targets, DType t = DType::kF32) {
    Shape tokens = x;
    tokens.erase(x.rank() - 1);
    return std::vector<SampleInput>{
        {{t, x}}, {{t, w}}, {{DType::kI32, tokens}, 0, 4, std::move(targets)}};
  };
  auto wrong = in({2, 3}, {5, 3}, {});
  wrong[2].type.shape = {3};
  return {{"batch", in({2, 3, 4}, {5, 4}, {0, 4, 2, 2, 1, 3}), {}},
          {"transposed", in({3, 4}, {4, 5}, {4, 0, 2}), {{"transposed", true}}},
          {"ignored, out of range", in({5, 2}, {3, 2}, {-100, 2, 3, -1, 0}), {}},
          {"ignores 0", in({4, 2}, {3, 2}, {0, 2, 1, 0}), {{"ignore_index", int64_t{0}}}},
          {"ignores 2", in({4, 2}, {5, 2}, {0, 2, 4, 3}), {{"ignore_index", int64_t{2}}}},
          {"one token", in({4}, {3, 4}, {2}), {}},
          {"no tokens", in({0, 4}, {3, 4}, {}), {}},
          {"bf16", in({3, 4}, {5, 4}, {4, 0, 2}, DType::kBF16), {}},
          {"bf16, rows of 32 bytes", in({3, 16}, {11, 16}, {4, -100, 10}, DType::kBF16), {}},
          {"w misfits", in({3, 4}, {5, 6}, {4, 0, 2}), {}, "w has d=6, x has d=4"},
          {"targets misfit", wrong, {}, "targets has ...0=3, x has ...0=2"}};
}
}  // namespace

LinearCrossEntropy linear_cross_entropy(Var x, Var w, Var targets,
                                        const CrossEntropyOptions& options, Loc loc) {
  Attrs a;
  if (options.is_transposed) a.set("transposed", true);
  if (options.ignore_index != -100) a.set("ignore_index", options.ignore_index);
  const Var in[] = {x, w, targets};
  const auto out = x.builder().emit_n(linear_cross_entropy_op, std::move(a), in, {}, loc);
  return {out[0], out[1]};
}

constinit const OpDef linear_cross_entropy_op = {
    .name = "linear_cross_entropy",
    .formula = "lse = log of the sum of exp(x W^T), picked = (x W^T)[target]",
    .source = "Wijmans et al. 2024 (cut cross-entropy), section 4",
    .group = "loss",
    .dims_fn = dims,
    .types = "F, F, i -> A, A",
    .attrs = kCrossEntropyAttrs,
    .split = {{"v", Combine::kLogSumExp, 0}, {"v", Combine::kSum, 1}, {"d", Combine::kNever}},
    .flops = flops,
    .bytes = row_bytes,
    .vjp = vjp,
    .decompose = decompose,
    .reference = reference_of<Ref>,
    .samples = samples,
    .localize = localize_cross_entropy,
    .precision = Precision::kLow,
};

}  // namespace tegula
