// Zero bubble, second handcrafted form (ZB-H2; Qi et al. 2023, section 2.2): twice the activations
// of 1F1B for no waiting at all. Rank r starts with 2(p − r) − 1 forward parts, as many as fit
// before the first gradient comes back, and puts weight gradients off by 2r micro-batches, so that
// it ends as much later than rank 0 as it began. From its first part to its last a rank waits for
// (p − 1)(F + B − 2W) with m ≥ 2p − 1 and W ≤ F, and keeps the activations of 2p − 1 micro-batches.
// The step as a whole still takes (p − 1)F longer, unless the next one begins where this one ends.

#include "tegula/base/algorithm.h"
#include "tegula/plan/schedule.h"

namespace tegula {

namespace {
Result<RankLists> make(const ScheduleShape& shape) {
  const int p = shape.n_ranks, m = shape.n_micro_batches;
  RankLists ranks(static_cast<size_t>(p));
  for (int r = 0; r < p; ++r) {
    auto& list = ranks[static_cast<size_t>(r)];
    int forward = 0, weights = 0;
    for (; forward < std::min(m, 2 * (p - r) - 1); ++forward)
      list.push_back({PartKind::kForward, r, forward});
    for (int backward = 0; backward < m; ++backward) {
      list.push_back({PartKind::kBackward, r, backward});
      if (backward >= 2 * r) list.push_back({PartKind::kWeightGradient, r, weights++});
      if (forward < m) list.push_back({PartKind::kForward, r, forward++});
    }
    while (weights < m) list.push_back({PartKind::kWeightGradient, r, weights++});
  }
  return ranks;
}
}  // namespace

extern constinit const ScheduleDef zero_bubble_h2_schedule = {
    .name = "zero_bubble_h2",
    .known_as = "zb-h2",
    .doc = "no waiting within a rank, for twice the activations (ZB-H2)",
    .weight_gradients_apart = true,
    .make = make};

}  // namespace tegula
