// 1F1B without flushes within the step (PipeDream-flush; Narayanan et al. 2021, section 2.2.1): a
// rank goes back as soon as it can, and then forward and backward in turns. It waits as long as
// GPipe, but keeps the activations of at most p micro-batches, the last rank of one.
#include "tegula/plan/schedule.h"

namespace tegula {

namespace {
Result<RankLists> make(const ScheduleShape& shape) {
  return in_turns(shape, [](int r, int p) { return InTurns{p - 1 - r}; });
}
}  // namespace

extern constinit const ScheduleDef one_f_one_b_schedule = {
    .name = "one_f_one_b",
    .known_as = "1f1b",
    .doc = "one forward, one backward in turns (PipeDream-flush)",
    .make = make};

}  // namespace tegula
