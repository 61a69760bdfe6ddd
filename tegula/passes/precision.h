// The types that mixed precision gives to an op's operands: shared by the pass that casts them and
// the one that must not decompose what has a kernel once they are cast.
#pragma once

#include <vector>

#include "tegula/ir/opdef.h"

namespace tegula {

// Is operand i one of those that share operand 0's dtype?
bool is_low_operand(const OpDef& op, size_t i);

// The f32 operands among them in the dtype `low`, the others as they are.
std::vector<Type> lowered_types(const OpDef& op, std::span<const Type> in, DType low);

}  // namespace tegula
