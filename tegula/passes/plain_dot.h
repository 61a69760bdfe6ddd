// The questions that passes that rewrite dots ask of one.
#pragma once

#include "tegula/base/dot_dims.h"
#include "tegula/ir/module.h"

namespace tegula {

// The names of a dot's dims, which its op has checked: views of the node's attribute.
DotDims dims_of(const Node& dot);

// How many trailing dims of the result come from b alone; -1: one that does stands before others.
int trailing_n(const DotDims& dims);

// A dot of two operands, without scale, bias or activation.
bool is_plain_dot(const Node& n);

}  // namespace tegula
