// Gradients of expert_combine: each choice's row of y gets weight dout[s, t, :], its weight
// gets <y's row, dout[s, t, :]>. Sums in the order of (s, t, j).
#include "tegula/ops/common/expert_slots.h"

namespace tegula {

namespace {
struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    std::vector<S> dy(static_cast<size_t>(a.in[0].numel()), S(0.0));
    for (int64_t s = 0; s < a.dim(1, 0); ++s)
      for (int64_t t = 0; t < a.dim(1, 1); ++t)
        for (int64_t j = 0; j < a.dim(1, 2); ++j) a.store(1, add_choice(a, s, t, j, dy), s, t, j);
    size_t at = 0;
    for_each_index(shape_of(a.out[0]), [&](const Index& i) { a.store_at(0, dy[at++], i); });
  }
  // -> the gradient of its weight
  template <class S>
  static S add_choice(RefArgs<S>& a, int64_t s, int64_t t, int64_t j, std::vector<S>& dy) {
    const int64_t n_shards = a.dim(0, 1), capacity = a.dim(0, 2), d = a.dim(0, 3);
    const Slot slot{a.load_i(1, s, t, j), a.load_i(2, s, t, j)};
    const S w = a.load(3, s, t, j);
    S dw = S(0.0);
    if (!slot.is_valid(a.dim(0, 0), capacity)) return dw;
    const int64_t row = (slot.expert * n_shards + s) * capacity + slot.position;
    for (int64_t i = 0; i < d; ++i) {
      const S dout = a.load(4, s, t, i);
      S& to = dy[static_cast<size_t>(row * d + i)];
      to = scalar::fma(w, dout, to);
      dw = scalar::fma(a.load(0, slot.expert, s, slot.position, i), dout, dw);
    }
    return dw;
  }
};

Bytes bytes(const OpCall& c) {
  Bytes b{chosen_bytes(c), c.out[0].bytes() + c.out[1].bytes()};
  for (size_t k = 1; k < c.in.size(); ++k) b.read += c.in[k].bytes();
  return b;
}

std::vector<Var> decompose(Builder&, const OpCall&, std::span<const Var> in) {
  const DType type = in[0].dtype(), sums = in[3].dtype();
  const Dim e = in[0].dim(0), s = in[0].dim(1), cap = in[0].dim(2), d = in[0].dim(3);
  const auto rows = mul(e, cap), choices = mul(in[1].dim(1), in[1].dim(2));
  if (!rows.ok()) return {in[0].builder().fail(rows.error()), Var()};
  if (!choices.ok()) return {in[0].builder().fail(choices.error()), Var()};
  const Var slots = slots_of(in[1], in[2], e, cap);
  const Var dout = unsqueeze(cast(in[4], sums), 2);  // [s, t, 1, d]
  const Var chosen = gather(cast(shards_first(in[0]), sums), slots, 1, 1);
  const Var to_rows = reshape(unsqueeze(in[3], -1) * dout, {s, *choices, d});
  const Var dy = scatter_add(to_rows, reshape(slots, {s, *choices}), 1, *rows, 1);
  return {cast(experts_first(dy, e, cap), type), reduce_sum(chosen * dout, {3})};
}

// expert_combine's samples with a cotangent.
std::vector<Sample> samples() {
  std::vector<Sample> all;
  for (Sample& s : expert_combine_op.samples()) {
    if (!s.expect_error.empty()) continue;
    s.in.push_back({{s.in[0].type.dtype,
                     {s.in[1].type.shape[0], s.in[1].type.shape[1], s.in[0].type.shape[3]}}});
    all.push_back(std::move(s));
  }
  Sample wrong = all[0];
  wrong.name = "dout misfits";
  wrong.in[4].type.shape[2] = 5;
  wrong.expect_error = "dout has d=5, y has d=4";
  all.push_back(std::move(wrong));
  return all;
}
}  // namespace

constinit const OpDef expert_combine_bwd_op = {
    .name = "expert_combine_bwd",
    .formula =
        "dy[e, s, p, :] = sum of weights dout over choices of (e, s, p), dweights = <y, dout>",
    .source = "Lepikhin et al. 2020, section 2.2",
    .group = "experts",
    .dims_fn =
        [](const OpCall& c) {
          return combine_dims(c,
                              "y: e s cap d, experts: s t k, positions: s t k, weights: s t k, "
                              "dout: s t d -> e s cap d, s t k");
        },
    .types = "F, i, i, A, F -> F, A",
    .flops = [](const OpCall& c) { return 4 * c.in[1].shape.numel() * c.shape(0)[3].bound(); },
    .bytes = bytes,
    .decompose = decompose,
    .reference = reference_of<Ref>,
    .samples = samples,
};

}  // namespace tegula
