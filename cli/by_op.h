// What each kernel takes of a plan's run.
#pragma once

#include "tegula/io/json.h"
#include "tegula/runtime/measure.h"

namespace tegula::cli {

// Launches of one phase, op, kernel and shape of operands together, the longest first:
// [{"phase", "op", "kernel", "shapes", "launches", "ms", "gflops", "gbytes_per_s"}, …]
Result<Json> times_by_op(Measurement& m);
void print_by_op(const Json& ops);

}  // namespace tegula::cli
