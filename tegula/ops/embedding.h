// Rows of a table by number, for model code.
#pragma once

#include "tegula/ops/math.h"

namespace tegula {

// table[v, d], ids[...] of i32 or i64 -> [..., d]; an id outside [0, v) gives a row of zeros.
Var embedding(Var table, Var ids, Loc loc = Loc::current());
// The same, and an id of `padding_idx` gives a row of zeros, too, and its row of the table gets no
// gradient: what torch does with a padding row that is, and so stays, zero.
Var embedding(Var table, Var ids, int64_t padding_idx, Loc loc = Loc::current());

}  // namespace tegula
