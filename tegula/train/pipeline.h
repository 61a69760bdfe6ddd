// Training over a pipeline: the ranks of the mesh's axis "pp" have a stage each, or several, and
// run the parts of --accumulate micro-batches in the order of a schedule (plan/schedules). All
// other axes are those of each stage's ranks (train/ranks.h).
//
// In mode exact the bits are those of one rank that accumulates.
#pragma once

#include "tegula/runtime/compile_stages.h"
#include "tegula/train/step.h"

namespace tegula {

bool has_pipeline(const TrainConfig& config);
// The configuration of the ranks that have one stage: without the axis.
TrainConfig of_a_stage(const TrainConfig& config);

// Errors: no such schedule; numbers that it cannot serve; ZeRO 2 and 3, which would fetch and share
// out for each micro-batch what a stage holds for all; stages that are not where layers begin, in
// their order; fewer layers than stages.
Result<Schedule> schedule_of(const TrainConfig& config);
// The forward parts of one micro-batch, on the ranks where they are.
Schedule forward_of(const Schedule& schedule);
Result<std::vector<std::string>> stages_of(const TrainConfig& config,
                                           const StepFunctions& functions, const Target& target);

Result<CompiledStages> compile_pipeline(const TrainConfig& config, const StepFunctions& functions,
                                        const Target& target, const std::vector<std::string>& cuts);
// The same of eval_loss.
Result<CompiledStages> compile_pipeline_eval(const TrainConfig& config,
                                             const StepFunctions& functions, const Target& target,
                                             const std::vector<std::string>& cuts);

// The rank's: its flows are part of the arena.
StepCost cost_of_stages(const PlannedProgram& program);

}  // namespace tegula
