// The sizes that a tuner may choose in dot_packed, and their expected cost: sizes of dot_plan.h.
#pragma once

#include "tegula/kernels/tuning.h"

namespace tegula::kernel {

extern const TuningSpace kDotTuning;

}  // namespace tegula::kernel
