// Zero bubble, second handcrafted form (ZB-H2; Qi et al. 2023, section 2.2): twice the activations
// of 1F1B for no waiting at all. Rank r starts with 2(p − r) − 1 forward parts, as many as fit
// before the first gradient comes back, and puts weight gradients off by 2r micro-batches, so that
// it ends as much later than rank 0 as it began. From its first part to its last a rank waits for
// (p − 1)(F + B − 2W) with m ≥ 2p − 1 and W ≤ F, and keeps the activations of 2p − 1 micro-batches.
// The step as a whole still takes (p − 1)F longer, unless the next one begins where this one ends.
#include "tegula/plan/schedule.h"

namespace tegula {

namespace {
Result<RankLists> make(const ScheduleShape& shape) {
  return in_turns(shape, [](int r, int p) { return InTurns{2 * (p - r) - 1, false, 2 * r}; });
}
}  // namespace

extern constinit const ScheduleDef zero_bubble_h2_schedule = {
    .name = "zero_bubble_h2",
    .known_as = "zb-h2",
    .doc = "no waiting within a rank, for twice the activations (ZB-H2)",
    .weight_gradients_apart = true,
    .make = make};

}  // namespace tegula
