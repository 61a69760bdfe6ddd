// y = exp(x) / the sum of exp(x), over the last dim. A row of -inf alone gives NaN.
#include "tegula/ops/common/rows.h"

namespace tegula {

namespace {
struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const TensorRef& x = a.in[0];
    std::vector<S> e(static_cast<size_t>(x.shape[x.rank - 1]));
    for_each_row(x, [&](Index& i) {
      const RowExp<S> row = row_exp(a, i, [&](size_t j, S w) { e[j] = w; });
      for_each_in_row(x, i, [&](const Index& at, size_t j) { a.store_at(0, e[j] / row.sum, at); });
    });
  }
};

// The Jacobian is symmetric: one rule serves both directions.
Var slope(Builder& b, Var y, Var d) { return b.emit(softmax_bwd_op, {}, {y, d}); }

std::vector<Var> decompose(Builder&, const OpCall&, std::span<const Var> in) {
  const Var x = cast(in[0], accumulator(in[0].dtype()));
  const RowExps rows = row_exps(x, reduce_max(x, {-1}, true));
  return {cast(rows.e / rows.sum, in[0].dtype())};
}
}  // namespace

Var softmax(Var x, Loc loc) {
  if (x.is_poison()) return x;
  if (x.rank() == 0) return reshape(softmax(reshape(x, {1}, loc), loc), {}, loc);
  return x.builder().emit(softmax_op, {}, {x}, loc);
}

constinit const OpDef softmax_op = norm_op({
    .name = "softmax",
    .formula = "y = exp(x) / the sum of exp(x) over the last dim",
    .dims = "... d -> ... d",
    .types = "F -> F",
    .flops = [](const OpCall& c) { return 5 * c.in[0].shape.numel(); },
    .vjp = [](Builder& b, const VjpCall& c) -> Grads { return {slope(b, c.out[0], c.grad[0])}; },
    .jvp = [](Builder& b, const JvpCall& c) -> Grads { return {slope(b, c.out[0], c.tangent[0])}; },
    .decompose = decompose,
    .reference = reference_of<Ref>,
    .samples =
        [] {
          const auto f32 = DType::kF32;
          return std::vector<Sample>{
              {"rows", {{{f32, {2, 3, 5}}}}, {}},
              {"one row", {{{f32, {7}}, -3, 3}}, {}},
              {"large", {{{f32, {2, 5}}, 800, 804}}, {}},
              {"some are -inf", {{{f32, {1, 3}}, 0, 0, {0.5, -kInfinity, 0.25}, false}}, {}},
              {"no rows", {{{f32, {0, 5}}}}, {}},
              {"bf16", {{{DType::kBF16, {3, 5}}}}, {}},
              {"scalar", {{{f32, {}}}}, {}, "at least 1 dims"}};
        },
});

}  // namespace tegula
