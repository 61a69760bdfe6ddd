// chain_of: a Program without functions, of stages that are priced rather than built, for whoever
// asks what a schedule would take: planners, tests.
//
// Stages form a chain: activations go up, gradients down, what is saved stays. Flows have the bytes
// of one micro-batch (or slice).
#pragma once

#include <span>
#include <vector>

#include "tegula/plan/schedule.h"

namespace tegula {

// The price of one micro-batch, or of one slice of it; the update's once a step.
struct StagePrice {
  double forward_s = 0;
  double backward_s = 0;          // gradients of inputs; of weights, too, if they are not apart
  double weight_gradients_s = 0;  // else part of the backward part
  double update_s = 0;
  int64_t output_bytes = 0;  // to the next stage; its gradient comes back
  // Saved forward: until weight gradients are made, and what is let go with B where they are apart.
  int64_t saved_bytes = 0;
  int64_t saved_for_backward_bytes = 0;
  int64_t saved_for_weights_bytes = 0;  // made by B for W, where it is apart
  int64_t gradient_bytes = 0;           // of all weights: what ranks that hold the same stage sum
};

struct StageChain {
  Program program;
  std::vector<double> seconds;  // of each part
};

// `stages`: one for each of the schedule's. Where weight gradients are not apart, B takes
// backward_s + weight_gradients_s.
StageChain chain_of(const Schedule& schedule, std::span<const StagePrice> stages);

}  // namespace tegula
