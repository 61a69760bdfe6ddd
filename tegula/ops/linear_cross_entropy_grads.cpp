// linear_cross_entropy together with its gradient, for cotangents that do not wait for its results:
// logits are computed once instead of twice, some tokens' at a time.
#include "tegula/ops/cross_entropy_call.h"

namespace tegula {

namespace {
Result<DimMap> dims(const OpCall& c) {
  const auto w = weight_dims(*c.attrs);
  return cross_entropy_dims(c, cat("x: ... d, w: ", w, ", targets: ..., dlse: ..., dpicked: ... ",
                                   "-> ..., ..., ... d, ", w));
}

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const CrossEntropyCall call(a.call);
    const auto d = static_cast<size_t>(call.d), v = static_cast<size_t>(call.v);
    std::vector<S> logits(v), dw(v * d, S(0.0));
    for_each_row(a.in[0], [&](Index& i) {
      const int64_t target = logits_of(a, i, logits);
      const S lse = log_sum_exp(logits);
      a.store_at(0, lse, i);
      a.store_at(1, target < 0 ? S(0.0) : logits[static_cast<size_t>(target)], i);
      add_gradients(a, i, logits, target, finite(lse), a.load_at(3, i), a.load_at(4, i), 2, dw);
    });
    store_dw(a, 3, dw, v, d);
  }
};

int64_t flops(const OpCall& c) {
  const CrossEntropyCall call(c);
  return call.tokens * (call.v * (6 * call.d + 8) + 2);
}

std::vector<Var> decompose(Builder& b, const OpCall& c, std::span<const Var> in) {
  const auto sums = b.emit_n(linear_cross_entropy_op, *c.attrs, in.first(3));
  const Var args[] = {in[0], in[1], in[2], sums[0], in[3], in[4]};
  const auto grads = b.emit_n(linear_cross_entropy_bwd_op, *c.attrs, args);
  return {sums[0], sums[1], grads[0], grads[1]};
}

// The forward op's samples with cotangents put in.
std::vector<Sample> samples() {
  std::vector<Sample> all;
  for (Sample& s : linear_cross_entropy_op.samples()) {
    if (!s.expect_error.empty()) continue;
    const Type stats = {accumulator(s.in[0].type.dtype), s.in[2].type.shape};
    s.in.push_back({stats});
    s.in.push_back({stats});
    all.push_back(std::move(s));
  }
  return all;
}
}  // namespace

constinit const OpDef linear_cross_entropy_grads_op = {
    .name = "linear_cross_entropy_grads",
    .formula =
        "lse, picked, and dx = dl W, dW = dl^T x, dl = dlse exp(x W^T - lse) + dpicked [n = "
        "target]",
    .source = "Hsu et al. 2024 (Liger Kernel)",
    .group = "loss",
    .dims_fn = dims,
    .types = "F, F, i, A, A -> A, A, F, F",
    .attrs = kCrossEntropyAttrs,
    .split = {{"v", Combine::kNever}, {"d", Combine::kNever}},
    .flops = flops,
    .bytes = row_bytes,
    .decompose = decompose,
    .reference = reference_of<Ref>,
    .samples = samples,
    .precision = Precision::kLow,
};

}  // namespace tegula
