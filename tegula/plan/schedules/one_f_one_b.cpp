// 1F1B without flushes within the step (PipeDream-flush; Narayanan et al. 2021, section 2.2.1): a
// stage goes back as soon as it can, and then forward and backward in turns. It waits as long as
// GPipe, but keeps the activations of at most p micro-batches, the last stage of one.
#include <algorithm>

#include "tegula/plan/schedule.h"

namespace tegula {

namespace {
Schedule make(int n_stages, int n_micro_batches) {
  Schedule s(static_cast<size_t>(n_stages));
  for (int stage = 0; stage < n_stages; ++stage) {
    auto& list = s[static_cast<size_t>(stage)];
    int forward = 0;
    for (; forward < std::min(n_micro_batches, n_stages - 1 - stage); ++forward)
      list.push_back({PartKind::kForward, forward});
    for (int backward = 0; backward < n_micro_batches; ++backward) {
      if (forward < n_micro_batches) list.push_back({PartKind::kForward, forward++});
      list.push_back({PartKind::kBackward, backward});
    }
  }
  return s;
}
}  // namespace

extern constinit const ScheduleDef one_f_one_b_schedule = {
    .name = "one_f_one_b",
    .doc = "one forward, one backward in turns (PipeDream-flush)",
    .make = make};

}  // namespace tegula
