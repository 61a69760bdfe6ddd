// y = x - log of the sum of exp(x), over the last dim.
#include "tegula/ops/common/rows.h"

namespace tegula {

namespace {
struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const TensorRef& x = a.in[0];
    for_each_row(x, [&](Index& i) {
      const RowExp<S> row = row_exp(a, i, [](size_t, S) {});
      const S log_sum = scalar::log(row.sum);
      for_each_in_row(x, i, [&](const Index& at, size_t) {
        a.store_at(0, a.load_at(0, at) - row.top - log_sum, at);
      });
    });
  }
};

// dx = dy - exp(y) sum(dy), and dy = dx - sum(exp(y) dx).
Grads vjp(Builder&, const VjpCall& c) {
  const DType type = c.in[0].dtype();
  const Var y = cast(c.out[0], accumulator(type)), dy = cast(c.grad[0], y.dtype());
  return {cast(dy - exp(y) * reduce_sum(dy, {-1}, true), type)};
}
Grads jvp(Builder&, const JvpCall& c) {
  const DType type = c.in[0].dtype();
  const Var y = cast(c.out[0], accumulator(type)), dx = cast(c.tangent[0], y.dtype());
  return {cast(dx - reduce_sum(exp(y) * dx, {-1}, true), type)};
}

std::vector<Var> decompose(Builder&, const OpCall&, std::span<const Var> in) {
  const Var x = cast(in[0], accumulator(in[0].dtype()));
  const RowExps rows = row_exps(x, reduce_max(x, {-1}, true));
  return {cast(rows.centred - log(rows.sum), in[0].dtype())};
}
}  // namespace

Var log_softmax(Var x, Loc loc) {
  if (x.is_poison()) return x;
  if (x.rank() == 0) return reshape(log_softmax(reshape(x, {1}, loc), loc), {}, loc);
  return x.builder().emit(log_softmax_op, {}, {x}, loc);
}

constinit const OpDef log_softmax_op = norm_op({
    .name = "log_softmax",
    .formula = "y = x - log of the sum of exp(x) over the last dim",
    .dims = "... d -> ... d",
    .types = "F -> F",
    .flops = [](const OpCall& c) { return 6 * c.in[0].shape.numel() + row_count(c.in[0]); },
    .vjp = vjp,
    .jvp = jvp,
    .decompose = decompose,
    .reference = reference_of<Ref>,
    .samples =
        [] {
          const auto f32 = DType::kF32;
          return std::vector<Sample>{{"rows", {{{f32, {2, 3, 5}}}}, {}},
                                     {"one row", {{{f32, {7}}, -3, 3}}, {}},
                                     {"large", {{{f32, {2, 5}}, 800, 804}}, {}},
                                     {"no rows", {{{f32, {0, 5}}}}, {}},
                                     {"bf16", {{{DType::kBF16, {3, 5}}}}, {}},
                                     {"scalar", {{{f32, {}}}}, {}, "at least 1 dims"}};
        },
});

}  // namespace tegula
