// linear_cross_entropy together with its gradient, for cotangents that do not wait for its results:
// logits are computed once instead of twice, some tokens' at a time.
#include "tegula/base/saturating.h"
#include "tegula/ops/common/cross_entropy_call.h"

namespace tegula {

namespace {
Result<DimMap> dims(const OpCall& c) {
  return cross_entropy_dims(
      c, "x: ... d, w: W, targets: ..., dlse: ..., dpicked: ... -> ..., ..., ... d, W");
}

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    store_gradients(a, 3, 2, [&](Index& i, const std::vector<S>& logits, int64_t target) {
      return store_sums(a, i, logits, target);
    });
  }
};

int64_t flops(const OpCall& c) {
  const CrossEntropyCall call(c);
  return (Count(call.tokens) * (Count(call.v) * (6 * call.d + 8) + 2)).n;
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
