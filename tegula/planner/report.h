// The answer as one JSON object on one line, and as a page of text.
#pragma once

#include <string>

#include "tegula/planner/answer.h"

namespace tegula::planner {

// Keys: docs/cli.md, tegula plan MODEL.
std::string to_json(const Answer& answer);
std::string to_text(const Answer& answer);

}  // namespace tegula::planner
