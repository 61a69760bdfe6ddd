// Compares what is asked for with what this machine has.
#pragma once

#include <string>

#include "cli/flags.h"
#include "tegula/train/config.h"
#include "tegula/train/step.h"

namespace tegula::cli {

// --threads; more than there are cores is told in a line.
Flag add_threads(const Command& cmd, int& threads);

// Where a step takes more memory than the machine has (or the process may use): a line that says
// so, with the --memory that makes it fit, found by planning, or that none does. Else "".
std::string memory_note(const TrainConfig& config, const StepCost& cost);

}  // namespace tegula::cli
