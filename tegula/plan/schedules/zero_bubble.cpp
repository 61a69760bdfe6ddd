// Zero bubble, first handcrafted form (ZB-H1; Qi et al. 2023, section 2.1): 1F1B whose backward is
// in two parts. Only gradients of inputs are waited for, so weight gradients fill what would be
// waiting: of (p − 1)(F + B + W) of it, (p − 1)(F + B − W) is left. Rank r puts its weight
// gradients off by r micro-batches, so that every rank keeps the activations of p at most.
#include "tegula/plan/schedule.h"

namespace tegula {

namespace {
Result<RankLists> make(const ScheduleShape& shape) {
  return in_turns(shape, [](int r, int p) { return InTurns{p - 1 - r, true, r}; });
}
}  // namespace

extern constinit const ScheduleDef zero_bubble_schedule = {
    .name = "zero_bubble",
    .known_as = "zb-h1",
    .doc = "1F1B with weight gradients in the gaps (ZB-H1)",
    .weight_gradients_apart = true,
    .make = make};

}  // namespace tegula
