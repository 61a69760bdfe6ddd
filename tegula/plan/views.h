// Views: where a view op's result lies, as strides of its operand's buffer.
#pragma once

#include "tegula/ir/opdef.h"
#include "tegula/plan/plan.h"

namespace tegula {

// Result `index` of a view op on an operand laid out as `in` (strides and byte offset relative to
// its slot). Derived from the op's DimMap alone: operand index = Σ coeff·factor, so a result dim of
// one factor has stride Σ operand stride·coeff, and a product of factors has one stride only if its
// parts nest. Error kUnsupported: no strides describe it, a copy is needed.
Result<PlanTensor> view_of(const OpCall& call, size_t index, const PlanTensor& in);

// Row-major strides at the bounds.
void set_contiguous(PlanTensor& t);
bool is_contiguous(const PlanTensor& t);

}  // namespace tegula
