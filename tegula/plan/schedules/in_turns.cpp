// Micro-batch after micro-batch, forward and backward: what one rank without stages does. Least
// memory, and all ranks but one wait.
#include "tegula/plan/schedule.h"

namespace tegula {

namespace {
Result<RankLists> make(const ScheduleShape& shape) {
  return in_turns(shape, [](int, int) { return InTurns{}; });
}
}  // namespace

extern constinit const ScheduleDef in_turns_schedule = {
    .name = "in_turns", .doc = "micro-batch after micro-batch", .make = make};

}  // namespace tegula
