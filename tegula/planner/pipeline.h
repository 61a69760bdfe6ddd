// The pipeline of a priced layout entry by entry: its schedule's lists, stages priced as the
// layout's are, run by tegula/plan/simulate. What the closed forms of step_price.h leave out is in
// it: a last stage with fewer layers and the head, messages that come late.
#pragma once

#include <vector>

#include "tegula/plan/simulate.h"
#include "tegula/plan/stage_chain.h"
#include "tegula/planner/step_price.h"

namespace tegula::planner {

struct PipelineRun {
  Schedule schedule;
  StageChain chain;
  Simulated simulated;
};

// Error: more than 2^21 entries, which nobody waits for; the schedule's own.
Result<PipelineRun> run_pipeline(StepPricer& pricer, const StepPrice& price);

// The same layout by every schedule that can serve it, with as few chunks or slices as it has.
std::vector<StepPrice> by_every_schedule(StepPricer& pricer, const ModelSpec& model,
                                         const Layout& layout);

}  // namespace tegula::planner
