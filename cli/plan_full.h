// tegula plan MODEL --plan-in-full: the memory of the best layouts from the project's own graph.
#pragma once

#include <string>

#include "tegula/planner/answer.h"

namespace tegula::cli {

// For each of the best layouts without a pipeline: the whole step's graph, sharded over tp and cp,
// and planned for one rank, beside what the search counted. Errors: a model that is not built here.
Result<std::string> plan_in_full(const planner::Answer& answer);

}  // namespace tegula::cli
