// Micro-batch after micro-batch, forward and backward: what one rank without stages does. Least
// memory, and all ranks but one wait.
#include "tegula/plan/schedule.h"

namespace tegula {

namespace {
Result<RankLists> make(const ScheduleShape& shape) {
  RankLists ranks(static_cast<size_t>(shape.n_ranks));
  for (int r = 0; r < shape.n_ranks; ++r)
    for (int m = 0; m < shape.n_micro_batches; ++m)
      for (const PartKind kind : {PartKind::kForward, PartKind::kBackward})
        ranks[static_cast<size_t>(r)].push_back({kind, r, m});
  return ranks;
}
}  // namespace

extern constinit const ScheduleDef in_turns_schedule = {
    .name = "in_turns", .doc = "micro-batch after micro-batch", .make = make};

}  // namespace tegula
