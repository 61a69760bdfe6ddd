// This machine's CPU as a Target with its rates measured, so that plans for it can be priced.
#pragma once

#include "tegula/kernels/target.h"
#include "tegula/runtime/rank.h"

namespace tegula {

// Peaks by bursts (runtime/probe.h); efficiencies by what plans reach there: a product of 1024³ in
// f32, and a sum of two tensors that no cache holds. bf16's peak is set so that the same product in
// bf16 takes, by its price, what it took. Under a second; errors are those of planning and memory.
Result<Target> measured_target(Rank& rank);

}  // namespace tegula
