// Zero bubble, first handcrafted form (ZB-H1; Qi et al. 2023, section 2.1): 1F1B whose backward is
// in two parts. Only gradients of inputs are waited for, so weight gradients fill what would be
// waiting: of (p − 1)(F + B + W) of it, (p − 1)(F + B − W) is left. Rank r puts its weight
// gradients off by r micro-batches, so that every rank keeps the activations of p at most.

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
    for (; forward < std::min(m, p - 1 - r); ++forward)
      list.push_back({PartKind::kForward, r, forward});
    for (int backward = 0; backward < m; ++backward) {
      if (forward < m) list.push_back({PartKind::kForward, r, forward++});
      list.push_back({PartKind::kBackward, r, backward});
      if (backward >= r) list.push_back({PartKind::kWeightGradient, r, weights++});
    }
    while (weights < m) list.push_back({PartKind::kWeightGradient, r, weights++});
  }
  return ranks;
}
}  // namespace

extern constinit const ScheduleDef zero_bubble_schedule = {
    .name = "zero_bubble",
    .known_as = "zb-h1",
    .doc = "1F1B with weight gradients in the gaps (ZB-H1)",
    .weight_gradients_apart = true,
    .make = make};

}  // namespace tegula
