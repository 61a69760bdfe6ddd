// The searches of others beside the enumeration, as lines of text.
#pragma once

#include <string>

#include "tegula/planner/answer.h"

namespace tegula::planner {

// For an answer whose best layout exists. For each search: how much slower what it found is, and
// after how many trials it had that; the median of nine seeds.
std::string compare_searches(const Answer& answer, int64_t n_trials);

}  // namespace tegula::planner
