// Choices without a limit: reduction, elimination, branches (choices.h says how).
#pragma once

#include <vector>

#include "tegula/base/algorithm.h"
#include "tegula/planner/choices.h"

namespace tegula::planner {

// Costs are compared with what additions in another order may differ by.
inline constexpr double kSame = 1e-12;

inline size_t least(const std::vector<double>& c) {
  return static_cast<size_t>(std::min_element(c.begin(), c.end()) - c.begin());
}

struct SolvedChoices {
  std::vector<int> choice;  // empty: none has a finite cost
  double cost = HUGE_VAL;
  double bound = 0;  // of every solution
  int64_t n_branches = 0;
  bool gave_up = false;  // after `most_branches` of them: the choice may not be the best
};

// Costs are c + multiplier·m; `fixed`: of each node the choice that it has, or -1. `most_work`: as
// of eliminate.
SolvedChoices solve_choices(const ChoiceProblem& problem, double multiplier,
                            const std::vector<int>& fixed, int64_t most_branches, double most_work);

}  // namespace tegula::planner
