// Where more would help: the best layout again, with twice of one thing.
#pragma once

#include <string>
#include <vector>

#include "tegula/planner/answer.h"

namespace tegula::planner {

struct Help {
  const char* what;
  double time = 0;  // by how much the step's share changes: -.2 is a fifth less
  const char* note = "";
  std::string by;  // the layout, where it is another one
};
std::vector<Help> what_would_help(const Answer& answer);

}  // namespace tegula::planner
