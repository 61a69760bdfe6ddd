// What rank 0 of config.mesh would run of a step, planned without the other ranks (train/ranks.h).
#pragma once

#include "tegula/runtime/compile_first_rank.h"
#include "tegula/train/step.h"

namespace tegula {

Result<std::shared_ptr<const Plan>> plan_of_first_rank(const TrainConfig& config,
                                                       const StepFunctions& functions,
                                                       FuncId function, const Target& target);

}  // namespace tegula
