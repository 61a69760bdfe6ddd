// tegula plan --stages: a training step cut at layers.
#pragma once

#include <string>
#include <vector>

#include "tegula/plan/program.h"
#include "tegula/train/config.h"

namespace tegula::cli {

struct Cut {
  PlannedProgram program;         // as one rank runs it
  std::vector<std::string> cuts;  // scopes that stages begin with, from the second on
};

// The step cut into the schedule's stages; `cuts` empty: so that the slowest stage is as fast as it
// can be by the prices of its steps, and the others as even as that leaves them. Errors: those of
// building, splitting and planning the step.
Result<Cut> cut_step(const TrainConfig& c, const Target& target, const Schedule& schedule,
                     std::vector<std::string> cuts);

}  // namespace tegula::cli
