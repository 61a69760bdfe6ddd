// The answer as one HTML page, complete in itself (inline SVG, no script): layouts, a step's
// seconds, memory by class and over the step, every op on the roofline, the pipeline, and why
// others lost.
#pragma once

#include <string>

#include "tegula/planner/answer.h"

namespace tegula::planner {

// The page of an answer whose best layout exists.
std::string to_html(const Answer& answer);

}  // namespace tegula::planner
