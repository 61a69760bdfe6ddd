// join_sums: the two upper sums of the stack of a step's micro-batches (ir/micro_groups.h), added.
#pragma once

#include <string>

#include "tegula/ir/module.h"

namespace tegula {

// Joins all sums that `summing` has as donated state, which are names "grad.*":
//   sums, next sums -> sums' = sums + next sums, next sums' = 0
// next sums are named "next.grad.*". kNone: it has none.
Result<FuncId> join_sums(Module& module, FuncId summing, const std::string& name);

}  // namespace tegula
