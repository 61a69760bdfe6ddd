// The pipeline of a priced layout entry by entry: its schedule's lists, stages priced as the
// layout's are, run by tegula/plan/simulate. What the closed forms of step_price.h leave out is in
// it: a last stage with fewer layers and the head, messages that come late.
#pragma once

#include <string>
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
// By another schedule, and with micro-batches cut into slices of tokens of which each takes an even
// share, but for its launches.
Result<PipelineRun> run_pipeline(StepPricer& pricer, const StepPrice& price,
                                 const ScheduleDef& schedule, int64_t n_slices = 1);

// What has no closed form and is run entry by entry for the layouts that search finds: ZB-V,
// Chimera, DualPipe, TeraPipe. Seconds of the step with the layout's own data parallelism and
// update; bytes of the worst rank, with weights twice where a schedule holds them so, and the
// activations that its list keeps.
struct OtherTurns {
  std::string schedule;
  double step_s = 0, peak_bytes = 0;
  std::string why_not;  // the schedule's own words, where it cannot serve the layout
};
std::vector<OtherTurns> other_turns(StepPricer& pricer, const StepPrice& price);

}  // namespace tegula::planner
