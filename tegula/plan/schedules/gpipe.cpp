// GPipe (Huang et al. 2019, section 2.3): all forward, then all backward. A stage keeps the
// activations of every micro-batch; of the time, (p − 1) / (m + p − 1) is spent waiting.
#include "tegula/plan/schedule.h"

namespace tegula {

namespace {
Schedule make(int n_stages, int n_micro_batches) {
  Schedule s(static_cast<size_t>(n_stages));
  for (auto& stage : s)
    for (const PartKind kind : {PartKind::kForward, PartKind::kBackward})
      for (int m = 0; m < n_micro_batches; ++m) stage.push_back({kind, m});
  return s;
}
}  // namespace

extern constinit const ScheduleDef gpipe_schedule = {
    .name = "gpipe", .doc = "all forward, then all backward (GPipe)", .make = make};

}  // namespace tegula
