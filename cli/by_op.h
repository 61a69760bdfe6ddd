// The share of a plan's run that each part of a model, and each kernel in it, takes.
#pragma once

#include "tegula/io/json.h"
#include "tegula/runtime/measure.h"

namespace tegula::cli {

// Launches of one place in the model (layers.*.attn: of all layers together), phase, op, kernel and
// shape of operands together, the longest first (on a device, a step whose work is in another's
// launch has none):
// [{"scope", "phase", "op", "kernel", "shapes", "launches", "ms", "gflops", "gbytes_per_s"}, …]
Result<Json> times_by_op(Measurement& m);
Json times_by_op(const Plan& plan, const std::vector<StepStats>& stats);
// Under a line for each place with its sum, the longest first.
void print_by_op(const Json& ops);

}  // namespace tegula::cli
