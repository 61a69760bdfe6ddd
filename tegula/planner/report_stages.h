// The page of unequal stages.
#pragma once

#include <string>

#include "tegula/planner/answer.h"

namespace tegula::planner {

// The best stages over micro-batches of up to 16 sequences, each stage's layers and submesh, beside
// the best layout of equal ones. Errors: those of price_stages; nothing fits.
Result<std::string> unequal_stages(const Answer& answer);

}  // namespace tegula::planner
