// y = log of the sum of exp(x) over the last dim, in f32 (f64 for f64). Rows of -inf, or without
// elements, give -inf. With by_blocks kernels go over the row as linear_cross_entropy does, so that
// the lse of logits is its lse, bit by bit.
#include "tegula/ops/common/rows.h"

namespace tegula {

namespace {
struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    for_each_row(a.in[0], [&](Index& i) {
      const RowExp<S> row = row_exp(a, i, [](size_t, S) {});
      a.store_at(0, row.top + scalar::log(row.sum), i);
    });
  }
};

std::vector<Var> decompose(Builder&, const OpCall&, std::span<const Var> in) {
  const Var x = cast(in[0], accumulator(in[0].dtype()));
  const Var top = finite(reduce_max(x, {-1}, true));
  return {squeeze(top + log(row_exps(x, top).sum), -1)};
}
}  // namespace

Var finite(Var top) { return select(eq(top, -kInfinity), zeros_like(top), top); }

RowExps row_exps(Var x, Var top) {
  const Var centred = x - top, e = exp(centred);
  return {centred, e, reduce_sum(e, {-1}, true)};
}

Var exp_less_lse(Var x, Var lse) { return exp(cast(x, lse.dtype()) - unsqueeze(finite(lse), -1)); }

Var logsumexp(Var x, Loc loc) {
  if (x.rank() == 0) x = reshape(x, {1}, loc);
  return x.builder().emit(logsumexp_op, {}, {x}, loc);
}

constinit const OpDef logsumexp_op = {
    .name = "logsumexp",
    .formula = "y = log of the sum of exp(x) over the last dim",
    .group = "reduction",
    .dims = "... d -> ...",
    .types = "F -> A",
    .attrs = {{"by_blocks", AttrKind::kBool, false,
               "in blocks of the row one after the other, as linear_cross_entropy"}},
    .split = {{"d", Combine::kLogSumExp}},
    .flops = [](const OpCall& c) { return 4 * c.in[0].shape.numel() + 2 * c.out[0].shape.numel(); },
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      const Var dx = exp_less_lse(c.in[0], c.out[0]) * unsqueeze(c.grad[0], -1);
      return {cast(dx, c.in[0].dtype())};
    },
    .jvp = [](Builder&, const JvpCall& c) -> Grads {
      const Var w = exp_less_lse(c.in[0], c.out[0]);
      return {reduce_sum(w * cast(c.tangent[0], w.dtype()), {-1})};
    },
    .decompose = decompose,
    .reference = reference_of<Ref>,
    .samples =
        [] {
          const auto f32 = DType::kF32;
          const double inf = kInfinity;
          return std::vector<Sample>{
              {"rows", {{{f32, {2, 3, 5}}}}, {}},
              {"one row", {{{f32, {7}}, -3, 3}}, {}},
              {"large", {{{f32, {2, 5}}, 800, 804}}, {}},
              {"some are -inf",
               {{{f32, {2, 2}}, 0, 0, {0.5, -inf, -inf, -inf}, false}},
               {},
               "",
               false},
              {"by blocks", {{{f32, {3, 150}}, -9, 9}}, {{"by_blocks", true}}},
              {"by blocks, all but one are -inf",
               {{{f32, {2, 2}}, 0, 0, {-inf, 0.5, -inf, -inf}, false}},
               {{"by_blocks", true}},
               "",
               false},
              {"no elements", {{{f32, {3, 0}}, -1, 1, {}, false}}, {}, "", false},
              {"bf16", {{{DType::kBF16, {3, 5}}}}, {}},
              {"scalar", {{{f32, {}}}}, {}, "at least 1 dims"}};
        },
    .precision = Precision::kHigh,
};

}  // namespace tegula
