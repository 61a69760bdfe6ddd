// Micro-batch after micro-batch, forward and backward: what one rank without stages does. Least
// memory, and all stages but one wait.
#include "tegula/plan/schedule.h"

namespace tegula {

namespace {
Schedule make(int n_stages, int n_micro_batches) {
  Schedule s(static_cast<size_t>(n_stages));
  for (auto& stage : s)
    for (int m = 0; m < n_micro_batches; ++m) {
      stage.push_back({PartKind::kForward, m});
      stage.push_back({PartKind::kBackward, m});
    }
  return s;
}
}  // namespace

extern constinit const ScheduleDef in_turns_schedule = {
    .name = "in_turns", .doc = "micro-batch after micro-batch", .make = make};

}  // namespace tegula
