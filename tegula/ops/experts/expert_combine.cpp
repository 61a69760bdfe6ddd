// Each token's experts' results, weighted and summed over its choices in order: see expert.h.
#include "tegula/ops/common/expert_slots.h"

namespace tegula {

namespace {
struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const int64_t d = a.dim(0, 3);
    std::vector<S> sum(static_cast<size_t>(d));
    for (int64_t s = 0; s < a.dim(1, 0); ++s)
      for (int64_t t = 0; t < a.dim(1, 1); ++t) {
        std::fill(sum.begin(), sum.end(), S(0.0));
        for (int64_t j = 0; j < a.dim(1, 2); ++j) add_choice(a, s, t, j, sum);
        for (int64_t i = 0; i < d; ++i) a.store(0, sum[static_cast<size_t>(i)], s, t, i);
      }
  }
  template <class S>
  static void add_choice(RefArgs<S>& a, int64_t s, int64_t t, int64_t j, std::vector<S>& sum) {
    const Slot slot{a.load_i(1, s, t, j), a.load_i(2, s, t, j)};
    const S w = a.load(3, s, t, j);
    if (!slot.is_valid(a.dim(0, 0), a.dim(0, 2))) return;
    for (size_t i = 0; i < sum.size(); ++i)
      sum[i] =
          scalar::fma(w, a.load(0, slot.expert, s, slot.position, static_cast<int64_t>(i)), sum[i]);
  }
};

Bytes bytes(const OpCall& c) {
  return {chosen_bytes(c) + c.in[1].bytes() + c.in[2].bytes() + c.in[3].bytes(), c.out[0].bytes()};
}

std::vector<Var> decompose(Builder&, const OpCall&, std::span<const Var> in) {
  const Dim e = in[0].dim(0), cap = in[0].dim(2);
  const Var rows = shards_first(in[0]);
  const Var slots = slots_of(in[1], in[2], e, cap);
  const Var chosen = cast(gather(rows, slots, 1, 1), in[3].dtype());
  return {cast(reduce_sum(chosen * unsqueeze(in[3], -1), {2}), in[0].dtype())};
}

std::vector<Sample> samples() {
  const SampleInput y = {{DType::kF32, {3, 1, 2, 4}}};
  auto ints = [](Shape s, std::vector<double> v) {
    return SampleInput{{DType::kI32, s}, 0, 0, std::move(v)};
  };
  auto weights = [](Shape s) { return SampleInput{{DType::kF32, s}}; };
  std::vector<Sample> s = {
      {"two choices",
       {y, ints({1, 3, 2}, {0, 2, 2, 1, 0, 1}), ints({1, 3, 2}, {0, 0, 1, 0, 1, 1}),
        weights({1, 3, 2})},
       {}},
      {"one choice", {y, ints({1, 2, 1}, {2, 0}), ints({1, 2, 1}, {1, 0}), weights({1, 2, 1})}, {}},
      {"no tokens", {y, ints({1, 0, 2}, {}), ints({1, 0, 2}, {}), weights({1, 0, 2})}, {}},
      {"bf16",
       {{{DType::kBF16, {2, 1, 2, 4}}},
        ints({1, 2, 1}, {1, 0}),
        ints({1, 2, 1}, {1, 0}),
        weights({1, 2, 1})},
       {}},
      {"some dropped",
       {y, ints({1, 3, 2}, {0, 2, 7, 1, 0, -1}), ints({1, 3, 2}, {0, -1, 1, 5, 1, 0}),
        weights({1, 3, 2})},
       {}},
      {"shards apart",
       {{{DType::kF32, {2, 2, 2, 3}}},
        ints({2, 2, 2}, {0, 1, 1, 0, 1, 0, 0, 1}),
        ints({2, 2, 2}, {0, 0, 1, 1, 0, 0, 1, 1}),
        weights({2, 2, 2})},
       {}},
      {"misfit",
       {y, ints({1, 3, 2}, {0, 2, 2, 1, 0, 1}), ints({1, 3, 2}, {0, 0, 1, 0, 1, 1}),
        weights({1, 3, 1})},
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
    .formula =
        "out[s, t, :] = sum over j of weights[s, t, j] y[experts[s, t, j], s, positions[s, t, j], "
        ":]",
    .source = "Lepikhin et al. 2020, section 2.2",
    .group = "experts",
    .dims_fn =
        [](const OpCall& c) {
          return combine_dims(
              c, "y: e s cap d, experts: s t k, positions: s t k, weights: s t k -> s t d");
        },
    .types = "F, i, i, A -> F",
    .flops = [](const OpCall& c) { return 2 * c.in[1].shape.numel() * c.shape(0)[3].bound(); },
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
