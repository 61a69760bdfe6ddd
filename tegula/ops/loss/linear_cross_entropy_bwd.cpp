// Gradients of linear_cross_entropy: with l = x W^T computed again, one token at a time,
//   dl = dlse exp(l - lse) + dpicked [n = target], dx = dl W, dW = the sum of dl^T x
// over tokens in ascending order.
#include "tegula/base/saturating.h"
#include "tegula/ops/common/cross_entropy_call.h"

namespace tegula {

namespace {
Result<DimMap> dims(const OpCall& c) {
  return cross_entropy_dims(
      c, "x: ... d, w: W, targets: ..., lse: ..., dlse: ..., dpicked: ... -> ... d, W");
}

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    store_gradients(a, 4, 0, [&](Index& i, const auto&, int64_t) { return a.load_at(3, i); });
  }
};

int64_t flops(const OpCall& c) {
  const CrossEntropyCall call(c);
  return (Count(call.tokens) * call.v * (6 * call.d + 4)).n;
}

std::vector<Var> decompose(Builder&, const OpCall& c, std::span<const Var> in) {
  const DType type = in[0].dtype();
  const CrossEntropyGraph g = cross_entropy_graph(c, in);
  auto per_token = [](Var t) { return unsqueeze(t, -1); };
  const Var p = exp(g.logits - per_token(finite(in[3])));
  const Var dl = p * per_token(in[4]) + select(g.picked, per_token(in[5]), zeros_like(g.logits));
  const std::string lead = leading_dims(g.x), w(weight_dims(*c.attrs));
  return {cast(dot(cat(lead, "v, ", w, " -> ", lead, "d"), dl, g.w), type),
          cast(dot(cat(lead, "v, ", lead, "d -> ", w), dl, g.x), type)};
}

// The forward op's samples with its results and cotangents put in.
std::vector<Sample> samples() {
  std::vector<Sample> all;
  for (Sample& s : linear_cross_entropy_op.samples()) {
    if (!s.expect_error.empty()) continue;
    const Type stats = {accumulator(s.in[0].type.dtype), s.in[2].type.shape};
    s.in.push_back({stats, 1, 3});
    s.in.push_back({stats});
    s.in.push_back({stats});
    all.push_back(std::move(s));
  }
  Sample wrong = all[0];
  wrong.name = "lse in bf16";
  wrong.in[3].type.dtype = DType::kBF16;
  wrong.expect_error = "operand 3 is bf16, expected f32";
  all.push_back(std::move(wrong));
  return all;
}
}  // namespace

constinit const OpDef linear_cross_entropy_bwd_op = {
    .name = "linear_cross_entropy_bwd",
    .formula = "dx = dl W, dW = dl^T x, dl = dlse exp(x W^T - lse) + dpicked [n = target]",
    .source = "Wijmans et al. 2024 (cut cross-entropy), section 4",
    .group = "loss",
    .dims_fn = dims,
    .types = "F, F, i, A, A, A -> F, F",
    .attrs = kCrossEntropyAttrs,
    .split = {{"d", Combine::kNever}},
    .flops = flops,
    .bytes = row_bytes,
    .decompose = decompose,
    .reference = reference_of<Ref>,
    .samples = samples,
    .localize = localize_cross_entropy,
    .precision = Precision::kLow,
};

}  // namespace tegula
