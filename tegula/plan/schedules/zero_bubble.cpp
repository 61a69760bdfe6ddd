// Zero bubble, first handcrafted form (ZB-H1; Qi et al. 2023, section 2.1): 1F1B whose backward is
// in two parts. Only gradients of inputs are waited for, so weight gradients fill what would be
// waiting: of (p − 1)(F + B + W) of it, (p − 1)(F + B − W) is left. Stage s puts its weight
// gradients off by s micro-batches, so that every stage keeps the activations of p at most.
#include <algorithm>

#include "tegula/plan/schedule.h"

namespace tegula {

namespace {
Schedule make(int n_stages, int n_micro_batches) {
  Schedule s(static_cast<size_t>(n_stages));
  for (int stage = 0; stage < n_stages; ++stage) {
    auto& list = s[static_cast<size_t>(stage)];
    int forward = 0, weights = 0;
    for (; forward < std::min(n_micro_batches, n_stages - 1 - stage); ++forward)
      list.push_back({PartKind::kForward, forward});
    for (int backward = 0; backward < n_micro_batches; ++backward) {
      if (forward < n_micro_batches) list.push_back({PartKind::kForward, forward++});
      list.push_back({PartKind::kBackward, backward});
      if (backward >= stage) list.push_back({PartKind::kWeightGradient, weights++});
    }
    while (weights < n_micro_batches) list.push_back({PartKind::kWeightGradient, weights++});
  }
  return s;
}
}  // namespace

extern constinit const ScheduleDef zero_bubble_schedule = {
    .name = "zero_bubble",
    .doc = "1F1B with weight gradients in the gaps (ZB-H1)",
    .weight_gradients_apart = true,
    .make = make};

}  // namespace tegula
