// Which state a value of the update goes with.
#pragma once

#include <vector>

#include "tegula/ir/module.h"

namespace tegula {

// Per value the parameter (a weight or its state) that it goes with element by element: what is
// computed of it in the update, and what that is computed of there in its shape; kNone: none.
std::vector<ValueId> state_of_values(const Function& f);

}  // namespace tegula
