// The memory of a step of many layers from the plans of three and of four.
//
// The arena's content while a step runs is known of every step of a plan. A layer more adds the
// same to each: what it keeps, until its own backward part has run, and its gradients after that.
// So of steps that correspond (the first, the second, the last but one and the last layer, what is
// outside of layers) the live bytes are linear in the number of layers,
//   live_L(step) = live_3(step) + (L − 3)·(live_4(step) − live_3(step)),
// and in between they are linear in the layer's index, so that the largest is at an end. The peak
// is the largest of them, equal to the byte to the liveness peak (lower_bound_bytes) of the whole
// plan.
#pragma once

#include <cstdint>

#include "tegula/plan/plan.h"

namespace tegula::planner {

// Live arena bytes of each step, slots rounded up to kAlignment as the memory planner does. Without
// what stands elsewhere: copies of weights, made of weights alone (casts, gathers, pieces joined);
// gradients of weights that wait for other ranks while other layers run.
std::vector<int64_t> live_bytes(const Plan& plan, bool with_all = true);
// few: a plan of n_few layers; more: of one more. Three do, but where what is under way in one
// layer ends in the next two (gradients joined in the background): five do there. Errors: fewer
// than n_few layers; a step of forward or backward of which only one of the plans has the like, or
// one of the update at which more lies than at any that both have.
Result<int64_t> composed_peak(const Plan& few, const Plan& more, int64_t n_layers, int n_few = 3);

// The bytes that a layer keeps and what its steps need beyond that, without what stands elsewhere,
// for stages of any number of layers n:
//   arena of a stage = kept · (layers in flight) + working(n, …)
// which for all layers on one rank, one micro-batch in flight, is the whole plan's live_bytes.
struct LayerLive {
  double kept = 0;      // of a layer, from its forward to its backward part
  double boundary = 0;  // of that, what it got from the layer before: kept where all is recomputed
  // Beyond kept · n, the most at any step of layers, and of the embedding (head) where the stage
  // has it. What others than these have written does not count.
  double working(int64_t n, bool has_first, bool has_last) const;

  struct At {
    double bytes = 0, slope = 0;  // live = bytes + n · slope
  };
  std::vector<At> steps[2][2];  // by has_first and has_last
};
// The same plans, of a step or micro-step; the same errors.
Result<LayerLive> layer_live(const Plan& few, const Plan& more, int n_few = 3);

}  // namespace tegula::planner
