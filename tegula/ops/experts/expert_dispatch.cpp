// Tokens into their experts' buckets, shard by shard, in the order of (token, choice): see
// expert.h.
#include "tegula/ops/common/expert_slots.h"

namespace tegula {

namespace {
// Positions depend on all earlier choices of a shard: shards are cut, tokens are not. Experts are,
// too: each part of them fills its own buckets, and of a choice's positions only its own expert's
// is not -1.
Result<DimMap> dims(const OpCall& c) {
  const auto &e = c.attrs->dims("experts"), &cap = c.attrs->dims("capacity");
  if (e.size() != 1 || cap.size() != 1)
    return invalid_argument("expert_dispatch: experts and capacity are one number each");
  const NamedDim known[] = {{"e", e[0]}, {"cap", cap[0]}};
  DimMap m = TEGULA_TRY(solve_dims(
      "expert_dispatch", "x: s t d, experts: s t k -> e s cap d, s t k, s e", c.in, known));
  m.factors[static_cast<size_t>(m.find("e"))].index_operand = 1;
  return m;
}

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    for (int64_t s = 0; s < a.dim(0, 0); ++s) fill_shard(a, s);
  }
  template <class S>
  static void fill_shard(RefArgs<S>& a, int64_t s) {
    const int64_t n_experts = a.out_dim(0, 0), capacity = a.out_dim(0, 2), d = a.dim(0, 2);
    std::vector<int64_t> count(static_cast<size_t>(n_experts), 0);
    for (int64_t t = 0; t < a.dim(1, 1); ++t)
      for (int64_t j = 0; j < a.dim(1, 2); ++j) {
        const int64_t e = a.load_i(1, s, t, j);
        int64_t p = -1;
        if (e >= 0 && e < n_experts && count[static_cast<size_t>(e)] < capacity) {
          p = count[static_cast<size_t>(e)]++;
          for (int64_t i = 0; i < d; ++i) a.store(0, a.load(0, s, t, i), e, s, p, i);
        }
        a.store_i_at(1, p, {s, t, j});
      }
    for (int64_t e = 0; e < n_experts; ++e) {
      for (int64_t p = count[static_cast<size_t>(e)]; p < capacity; ++p)
        for (int64_t i = 0; i < d; ++i) a.store(0, S(0.0), e, s, p, i);
      a.store_i_at(2, count[static_cast<size_t>(e)], {s, e});
    }
  }
};

std::vector<Var> decompose(Builder& b, const OpCall& c, std::span<const Var> in) {
  const DType i32 = DType::kI32;
  const Dim e = c.attrs->dims("experts")[0], cap = c.attrs->dims("capacity")[0];
  const Dim s = in[0].dim(0), t = in[0].dim(1), d = in[0].dim(2), k = in[1].dim(2);
  const auto choices = mul(t, k), rows = mul(e, cap);
  if (!choices.ok()) return {b.fail(choices.error()), Var(), Var()};
  if (!rows.ok()) return {b.fail(rows.error()), Var(), Var()};
  const Var capacity = extent_of(b, cap, i32);
  const Var experts = cast(reshape(in[1], {s, *choices}), i32);
  const Var chosen = one_hot(experts, e, i32);         // [s, t k, e]
  const Var before = cumsum(chosen, 1) - chosen;       // earlier choices of that expert
  const Var place = reduce_sum(before * chosen, {2});  // [s, t k]
  const Var is_kept = logical_and(gt(reduce_sum(chosen, {2}), 0.0), lt(place, capacity));
  const Var positions = select(is_kept, place, constant(b, -1, i32));
  const Var slots = slots_of(experts, positions, e, cap);
  const Var copies = broadcast(unsqueeze(in[0], 2), {s, t, k, d});
  const Var buckets = scatter_add(reshape(copies, {s, *choices, d}), slots, 1, *rows, 1);
  return {experts_first(buckets, e, cap), reshape(positions, {s, t, k}),
          min(reduce_sum(chosen, {1}), capacity)};
}

std::vector<Sample> samples() {
  auto attrs = [](int64_t e, int64_t cap) {
    return Attrs{{"experts", std::vector<Dim>{e}}, {"capacity", std::vector<Dim>{cap}}};
  };
  const SampleInput x = {{DType::kF32, {1, 4, 3}}};
  auto experts = [](Shape s, std::vector<double> v, DType t = DType::kI32) {
    return SampleInput{{t, s}, 0, 2, std::move(v)};
  };
  std::vector<Sample> s = {
      {"room for all", {x, experts({1, 4, 2}, {0, 2, 2, 1, 0, 1, 2, 0})}, attrs(3, 4)},
      {"one choice", {x, experts({1, 4, 1}, {1, 1, 0, 1}, DType::kI64)}, attrs(2, 3)},
      {"twice the same", {x, experts({1, 4, 2}, {1, 1, 0, 0, 1, 0, 0, 1})}, attrs(2, 4)},
      {"no tokens", {{{DType::kF32, {1, 0, 3}}}, experts({1, 0, 2}, {})}, attrs(3, 2)},
      {"bf16", {{{DType::kBF16, {1, 4, 3}}}, experts({1, 4, 1}, {0, 1, 0, 1})}, attrs(2, 2)},
      {"some dropped", {x, experts({1, 4, 2}, {0, 1, 0, 1, 0, 2, 0, 5})}, attrs(3, 2)},
      {"shards apart",
       {{{DType::kF32, {2, 3, 2}}}, experts({2, 3, 2}, {0, 1, 0, 1, 0, 2, 0, 1, 2, 2, 2, 2})},
       attrs(3, 2)},
      {"no room", {x, experts({1, 4, 1}, {0, 1, 0, 1})}, attrs(2, 0)},
      {"misfit", {x, experts({1, 3, 1}, {0, 1, 0})}, attrs(2, 2), "experts has t=3, x has t=4"}};
  s[5].cost_bound = s[6].cost_bound = s[7].cost_bound = kChoicesDecide;
  return s;
}
}  // namespace

Dispatched expert_dispatch(Var x, Var experts, Dim n_experts, Dim capacity, Loc loc) {
  const Var in[] = {x, experts};
  const auto out = x.builder().emit_n(
      expert_dispatch_op,
      {{"experts", std::vector<Dim>{n_experts}}, {"capacity", std::vector<Dim>{capacity}}}, in, {},
      loc);
  return {out[0], out[1], out[2]};
}

constinit const OpDef expert_dispatch_op = {
    .name = "expert_dispatch",
    .formula =
        "buckets[e, s, p, :] = x[s, t, :], p = how many choices of s before (t, j) are e, if p < "
        "cap",
    .source = "Lepikhin et al. 2020, section 2.2",
    .group = "experts",
    .dims_fn = dims,
    .types = "F, i -> F, i32, i32",
    .attrs = {{"experts", AttrKind::kDims, true, "how many experts"},
              {"capacity", AttrKind::kDims, true, "rows of a bucket"}},
    .split = {{"e", Combine::kMax, 1},
              {"d", Combine::kEqual, 1},
              {"d", Combine::kEqual, 2},
              {"t", Combine::kNever},
              {"k", Combine::kNever},
              {"cap", Combine::kNever}},
    .vjp = [](Builder& b, const VjpCall& c) -> Grads {
      const Type ones = {accumulator(c.in[0].dtype()), c.in[1].shape()};
      return {expert_combine(c.grad[0], c.in[1], c.out[1], fill(b, 1, ones)), Var()};
    },
    .decompose = decompose,
    .reference = reference_of<Ref>,
    .samples = samples,
    .localize =
        [](const OpCall& c, const DimMap& m, int factor, int64_t lo, int64_t hi) {
          Attrs a = *c.attrs;
          if (factor == m.find("e")) a.set("experts", std::vector<Dim>{hi - lo});
          return a;
        },
};

}  // namespace tegula
