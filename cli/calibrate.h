// tegula plan --calibrate: this CPU's kernel calls, timed once and kept, and what a step takes by
// them.
#pragma once

#include "tegula/planner/calibration.h"
#include "tegula/train/step.h"

namespace tegula::cli {

// The calibration of this machine, from the user's cache; calls on so many threads and in that
// dtype that it has not are timed first, some twenty seconds, and kept. Errors: those of compiling
// and of writing; a file that cannot be read is replaced, with a note.
Result<planner::Calibration> calibrate(const TrainConfig& config, int n_threads);
// A step by it, of the plans of its parts.
Result<planner::Predicted> predict_step(const TrainConfig& config, const Target& target,
                                        std::span<const StepPart> parts,
                                        std::span<const Plan* const> plans);

}  // namespace tegula::cli
