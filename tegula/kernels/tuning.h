// The choices of a tuner within a kernel: the knobs, the points worth trying for one call, and what
// each is expected to cost. Any kernel of any device may have one; the tuner that walks it is
// runtime/tuner.h.
#pragma once

#include <vector>

#include "tegula/kernels/kernel.h"

namespace tegula {

// The work of the thread that is done last: operations, and the bytes read out of each cache and,
// last, out of memory. A tuner divides them by what the machine reaches and takes that for a guess.
struct TuningCost {
  double flops = 0;
  double bytes[CacheSizes::kLevels + 1] = {};
};

struct TuningSpace {
  std::string_view knobs[Tuning::kKnobs];  // empty past the last
  // All points for a call, each once; the first is Tuning{}, the kernel's own rule.
  std::vector<Tuning> (*points)(const KernelQuery&) = nullptr;
  // The cost of query.tuning.
  TuningCost (*cost)(const KernelQuery&, const CacheSizes&) = nullptr;
};

}  // namespace tegula
