// Where a number comes from: one op, the step, the memory or the model of an answer's best layout,
// term by term with the numbers put in.
#pragma once

#include <string>
#include <string_view>

#include "tegula/planner/answer.h"

namespace tegula::planner {

// Explains `what`: an op of a layer, of the embedding or of the head ("ff up", "attention", …),
// "step", "memory", "params", "ring", "collectives". Errors: none of these (the nearest names); an
// op without a cluster; nothing fits.
Result<std::string> explain(const Answer& answer, std::string_view what);

}  // namespace tegula::planner
