// Parts of the page of text: what serving costs, accelerators of another kind and side by side.
#pragma once

#include <string>

#include "tegula/planner/answer.h"

namespace tegula::planner {

void add_serving(std::string& out, const Answer& answer);  // answer.serve must be there
// answer.other must be there.
void add_other(std::string& out, const Answer& answer);
void add_compared(std::string& out, const Answer& answer);

}  // namespace tegula::planner
