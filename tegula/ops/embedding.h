// Rows of a table by number, for model code.
#pragma once

#include "tegula/ops/math.h"

namespace tegula {

// table[v, d], ids[...] of i32 or i64 -> [..., d]; an id outside [0, v) gives a row of zeros.
Var embedding(Var table, Var ids, Loc loc = Loc::current());

}  // namespace tegula
