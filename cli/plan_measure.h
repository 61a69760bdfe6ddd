// tegula plan --measure: a few steps run here, beside what was planned of them.
#pragma once

#include "cli/plan_print.h"

namespace tegula::cli {

// Runs the planned step on random tokens: the first two runs watched (runtime/memory_watch.h), then
// so many that they take a second, at least three. Errors: no memory; a kernel that wrote where it
// may not.
Result<MeasuredStep> measure_step(const TrainConfig& config, const Planned& planned);

}  // namespace tegula::cli
