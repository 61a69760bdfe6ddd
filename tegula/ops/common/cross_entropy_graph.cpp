#include "tegula/ops/common/cross_entropy_call.h"
#include "tegula/ops/indexing.h"

namespace tegula {

std::string leading_dims(Var x) {
  static constexpr std::string_view kNames[] = {
      "", "a ", "a b ", "a b c ", "a b c e ", "a b c e f ", "a b c e f g ", "a b c e f g h "};
  TEGULA_CHECK(x.rank() >= 1 && x.rank() <= kMaxRank, "rank ", x.rank());
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

namespace {
// Sum and number of the losses of targets within [0, v) that are not ignored.
CrossEntropy total(Var loss, Var targets, Var v, int64_t ignored, Loc loc) {
  const Var in_range = logical_and(ge(targets, 0.0, loc), lt(targets, v, loc), loc);
  const Var counts = logical_and(in_range, ne(targets, static_cast<double>(ignored), loc), loc);
  std::vector<int64_t> all;
  for (int d = 0; d < targets.rank(); ++d) all.push_back(d);
  return {reduce_sum(select(counts, loss, zeros_like(loss, loc), loc), all, false, loc),
          reduce_sum(cast(counts, loss.dtype(), loc), all, false, loc)};
}
Var mean_of(const CrossEntropy& c, Loc loc) { return div(c.sum, max(c.count, 1.0, loc), loc); }
}  // namespace

CrossEntropy cross_entropy(Var x, Var w, Var targets, const CrossEntropyOptions& options, Loc loc) {
  const LinearCrossEntropy p = linear_cross_entropy(x, w, targets, options, loc);
  const Var v = extent(w, options.is_transposed ? 1 : 0, targets.dtype(), loc);
  return total(sub(p.lse, p.picked, loc), targets, v, options.ignore_index, loc);
}

Var cross_entropy_loss(Var x, Var w, Var targets, const CrossEntropyOptions& options, Loc loc) {
  return mean_of(cross_entropy(x, w, targets, options, loc), loc);
}

CrossEntropy logits_cross_entropy(Var logits, Var targets, const LogitsOptions& options, Loc loc) {
  Builder& b = logits.builder();
  if (logits.rank() < 1 || targets.rank() != logits.rank() - 1) {
    const Var failed = b.fail(invalid_argument(
        cat("logits_cross_entropy: logits are ", logits.type(), ", targets ", targets.type(),
            ": targets are shaped like logits without their last dim"),
        loc));
    return {failed, failed};
  }
  const int last = logits.rank() - 1;
  const Var x = cast(logits, accumulator(logits.dtype()), loc);
  const Var lse = logsumexp(x, loc);
  Var picked = squeeze(gather(x, unsqueeze(targets, -1, loc), last, last, loc), -1, loc);
  if (const double e = options.label_smoothing; e != 0)
    picked = add(mul(picked, 1 - e, loc), mul(reduce_mean(x, {-1}, false, loc), e, loc), loc);
  const Var v = extent(logits, last, targets.dtype(), loc);
  return total(sub(lse, picked, loc), targets, v, options.ignore_index, loc);
}

Var logits_cross_entropy_loss(Var logits, Var targets, const LogitsOptions& options, Loc loc) {
  return mean_of(logits_cross_entropy(logits, targets, options, loc), loc);
}

}  // namespace tegula
