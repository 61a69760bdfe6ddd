#include "tegula/ops/cross_entropy_call.h"

namespace tegula {

std::string leading_dims(Var x) {
  static constexpr std::string_view kNames[] = {"",       "a ",       "a b ",
                                                "a b c ", "a b c e ", "a b c e f "};
  TEGULA_CHECK(x.rank() >= 1 && x.rank() <= 6, "rank ", x.rank());
  return std::string(kNames[x.rank() - 1]);
}

CrossEntropyGraph cross_entropy_graph(const OpCall& c, std::span<const Var> in) {
  const DType sums = accumulator(in[0].dtype());
  CrossEntropyGraph g;
  g.x = cast(in[0], sums), g.w = cast(in[1], sums);
  const std::string lead = leading_dims(g.x);
  g.logits = dot(cat(lead, "d, ", weight_dims(*c.attrs), " -> ", lead, "v"), g.x, g.w);
  const Var target = unsqueeze(in[2], -1);
  const Var classes = iota(target.builder(), {g.logits.dim(-1)}, 0, target.dtype());
  const Var counts = ne(target, static_cast<double>(ignore_index(*c.attrs)));
  g.picked = logical_and(eq(target, classes), counts);
  return g;
}

CrossEntropy cross_entropy(Var x, Var w, Var targets, const CrossEntropyOptions& options, Loc loc) {
  const LinearCrossEntropy p = linear_cross_entropy(x, w, targets, options, loc);
  const Var v = extent(w, options.is_transposed ? 1 : 0, targets.dtype(), loc);
  const Var in_range = logical_and(ge(targets, 0.0, loc), lt(targets, v, loc), loc);
  const Var counts =
      logical_and(in_range, ne(targets, static_cast<double>(options.ignore_index), loc), loc);
  const Var loss = sub(p.lse, p.picked, loc);
  std::vector<int64_t> all;
  for (int d = 0; d < targets.rank(); ++d) all.push_back(d);
  return {reduce_sum(select(counts, loss, zeros_like(loss, loc), loc), all, false, loc),
          reduce_sum(cast(counts, loss.dtype(), loc), all, false, loc)};
}

Var cross_entropy_loss(Var x, Var w, Var targets, const CrossEntropyOptions& options, Loc loc) {
  const CrossEntropy c = cross_entropy(x, w, targets, options, loc);
  return div(c.sum, max(c.count, 1.0, loc), loc);
}

}  // namespace tegula
