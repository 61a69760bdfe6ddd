// This machine's CPU as a device of the cluster planner: --gpus this-cpu.
#pragma once

#include "tegula/planner/answer.h"

namespace tegula::cli {

inline constexpr std::string_view kThisCpu = "this-cpu";

// Where q.gpus asks for it, adds it to q.machines, measured with so many threads (0: all cores) in
// some seconds: peaks, and the least time of an op; products of few rows and of many, over as many
// bytes of weights as the model has, so that they lie in that level of memory where its weights do.
// Errors: several are asked for; the model's own.
Status add_this_cpu(planner::Question& question, int n_threads);

}  // namespace tegula::cli
