// 1F1B without flushes within the step (PipeDream-flush; Narayanan et al. 2021, section 2.2.1): a
// rank goes back as soon as it can, and then forward and backward in turns. It waits as long as
// GPipe, but keeps the activations of at most p micro-batches, the last rank of one.

#include "tegula/base/algorithm.h"
#include "tegula/plan/schedule.h"

namespace tegula {

namespace {
Result<RankLists> make(const ScheduleShape& shape) {
  const int p = shape.n_ranks, m = shape.n_micro_batches;
  RankLists ranks(static_cast<size_t>(p));
  for (int r = 0; r < p; ++r) {
    auto& list = ranks[static_cast<size_t>(r)];
    int forward = 0;
    for (; forward < std::min(m, p - 1 - r); ++forward)
      list.push_back({PartKind::kForward, r, forward});
    for (int backward = 0; backward < m; ++backward) {
      if (forward < m) list.push_back({PartKind::kForward, r, forward++});
      list.push_back({PartKind::kBackward, r, backward});
    }
  }
  return ranks;
}
}  // namespace

extern constinit const ScheduleDef one_f_one_b_schedule = {
    .name = "one_f_one_b",
    .known_as = "1f1b",
    .doc = "one forward, one backward in turns (PipeDream-flush)",
    .make = make};

}  // namespace tegula
