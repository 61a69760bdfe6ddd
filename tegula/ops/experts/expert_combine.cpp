// Each token's experts' results, weighted and summed over its choices in order: see expert.h.
#include "tegula/ops/common/expert_slots.h"

namespace tegula {

namespace {
struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const int64_t d = a.dim(0, 2);
    std::vector<S> sum(static_cast<size_t>(d));
    for (int64_t t = 0; t < a.dim(1, 0); ++t) {
      std::fill(sum.begin(), sum.end(), S(0.0));
      for (int64_t j = 0; j < a.dim(1, 1); ++j) {
        const Slot slot{a.load_i(1, t, j), a.load_i(2, t, j)};
        const S w = a.load(3, t, j);
        if (!slot.is_valid(a.dim(0, 0), a.dim(0, 1))) continue;
        for (int64_t i = 0; i < d; ++i) {
          S& to = sum[static_cast<size_t>(i)];
          to = scalar::fma(w, a.load(0, slot.expert, slot.position, i), to);
        }
      }
      for (int64_t i = 0; i < d; ++i) a.store(0, sum[static_cast<size_t>(i)], t, i);
    }
  }
};

Bytes bytes(const OpCall& c) {
  return {chosen_bytes(c) + c.in[1].bytes() + c.in[2].bytes() + c.in[3].bytes(), c.out[0].bytes()};
}

std::vector<Var> decompose(Builder&, const OpCall&, std::span<const Var> in) {
  const Dim e = in[0].dim(0), cap = in[0].dim(1), d = in[0].dim(2);
  const auto rows = mul(e, cap);
  if (!rows.ok()) return {in[0].builder().fail(rows.error())};
  const Var slots = slots_of(in[1], in[2], e, cap);
  const Var chosen = cast(gather(reshape(in[0], {*rows, d}), slots, 0), in[3].dtype());
  return {cast(reduce_sum(chosen * unsqueeze(in[3], -1), {1}), in[0].dtype())};
}

std::vector<Sample> samples() {
  const SampleInput y = {{DType::kF32, {3, 2, 4}}};
  auto ints = [](Shape s, std::vector<double> v) {
    return SampleInput{{DType::kI32, s}, 0, 0, std::move(v)};
  };
  auto weights = [](Shape s) { return SampleInput{{DType::kF32, s}}; };
  std::vector<Sample> s = {
      {"two choices",
       {y, ints({3, 2}, {0, 2, 2, 1, 0, 1}), ints({3, 2}, {0, 0, 1, 0, 1, 1}), weights({3, 2})},
       {}},
      {"one choice", {y, ints({2, 1}, {2, 0}), ints({2, 1}, {1, 0}), weights({2, 1})}, {}},
      {"no tokens", {y, ints({0, 2}, {}), ints({0, 2}, {}), weights({0, 2})}, {}},
      {"bf16",
       {{{DType::kBF16, {2, 2, 4}}}, ints({2, 1}, {1, 0}), ints({2, 1}, {1, 0}), weights({2, 1})},
       {}},
      {"some dropped",
       {y, ints({3, 2}, {0, 2, 7, 1, 0, -1}), ints({3, 2}, {0, -1, 1, 5, 1, 0}), weights({3, 2})},
       {}},
      {"misfit",
       {y, ints({3, 2}, {0, 2, 2, 1, 0, 1}), ints({3, 2}, {0, 0, 1, 0, 1, 1}), weights({3, 1})},
       {},
       "weights has k=1, experts has k=2"}};
  s[4].cost_bound = kChoicesDecide;
  return s;
}
}  // namespace

Var expert_combine(Var y, Var experts, Var positions, Var weights, Loc loc) {
  return y.builder().emit(expert_combine_op, {}, {y, experts, positions, weights}, loc);
}

constinit const OpDef expert_combine_op = {
    .name = "expert_combine",
    .formula = "out[t, :] = sum over j of weights[t, j] y[experts[t, j], positions[t, j], :]",
    .source = "Lepikhin et al. 2020, section 2.2",
    .group = "experts",
    .dims_fn =
        [](const OpCall& c) {
          return combine_dims(c, "y: e cap d, experts: t k, positions: t k, weights: t k -> t d");
        },
    .types = "F, i, i, A -> F",
    .flops = [](const OpCall& c) { return 2 * c.in[1].shape.numel() * c.shape(0)[2].bound(); },
    .bytes = bytes,
    .vjp = [](Builder& b, const VjpCall& c) -> Grads {
      const Var in[] = {c.in[0], c.in[1], c.in[2], c.in[3], c.grad[0]};
      const auto g = b.emit_n(expert_combine_bwd_op, {}, in);
      return {g[0], Var(), Var(), g[1]};
    },
    .decompose = decompose,
    .reference = reference_of<Ref>,
    .samples = samples,
};

}  // namespace tegula
