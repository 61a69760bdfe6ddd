// y = log of the sum of exp(x) over the last dim, in f32 (f64 for f64). Rows of -inf, or without
// elements, give -inf.
#include "tegula/ops/rows.h"

namespace tegula {

namespace {
struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const TensorRef& x = a.in[0];
    for_each_row(x, [&](Index& i) {
      S top = S(-HUGE_VAL), sum = S(0.0);
      for_each_in_row(x, i,
                      [&](const Index& at, size_t) { top = scalar::max(top, a.load_at(0, at)); });
      top = finite(top);
      for_each_in_row(x, i,
                      [&](const Index& at, size_t) { sum += scalar::exp(a.load_at(0, at) - top); });
      a.store_at(0, top + scalar::log(sum), i);
    });
  }
};

// dy/dx = exp(x - y).
Var weights(Var x, Var y) { return exp(cast(x, y.dtype()) - unsqueeze(finite(y), -1)); }

std::vector<Var> decompose(Builder&, const OpCall&, std::span<const Var> in) {
  const Var x = cast(in[0], accumulator(in[0].dtype()));
  const Var top = finite(reduce_max(x, {-1}, true));
  return {squeeze(top + log(reduce_sum(exp(x - top), {-1}, true)), -1)};
}
}  // namespace

Var finite(Var top) { return select(eq(top, -HUGE_VAL), zeros_like(top), top); }

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
    .split = {{"d", Combine::kLogSumExp}},
    .flops = [](const OpCall& c) { return 4 * c.in[0].shape.numel() + 2 * c.out[0].shape.numel(); },
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      const Var dx = weights(c.in[0], c.out[0]) * unsqueeze(c.grad[0], -1);
      return {cast(dx, c.in[0].dtype())};
    },
    .jvp = [](Builder&, const JvpCall& c) -> Grads {
      const Var w = weights(c.in[0], c.out[0]);
      return {reduce_sum(w * cast(c.tangent[0], w.dtype()), {-1})};
    },
    .decompose = decompose,
    .reference = reference_of<Ref>,
    .samples =
        [] {
          const auto f32 = DType::kF32;
          const double inf = HUGE_VAL;
          return std::vector<Sample>{
              {"rows", {{{f32, {2, 3, 5}}}}, {}},
              {"one row", {{{f32, {7}}, -3, 3}}, {}},
              {"large", {{{f32, {2, 5}}, 800, 804}}, {}},
              {"some are -inf",
               {{{f32, {2, 2}}, 0, 0, {0.5, -inf, -inf, -inf}, false}},
               {},
               "",
               false},
              {"no elements", {{{f32, {3, 0}}, -1, 1, {}, false}}, {}, "", false},
              {"bf16", {{{DType::kBF16, {3, 5}}}}, {}},
              {"scalar", {{{f32, {}}}}, {}, "at least 1 dims"}};
        },
    .precision = Precision::kHigh,
};

}  // namespace tegula
