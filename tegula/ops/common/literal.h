// Numbers written into a graph: a constant, what pad fills with.
#pragma once

#include "tegula/ir/opdef.h"

namespace tegula {

// Integers and bools take no number that they do not hold: rounding it would change the meaning of
// `x < 2.5` and `x * 0.5` unseen. Floats take any.
Status check_literal(const OpDef& op, double value, DType dtype);

}  // namespace tegula
