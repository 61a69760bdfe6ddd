// A stable order of each row, largest first or smallest first, for model code.
#pragma once

#include "tegula/ops/math.h"

namespace tegula {

struct Ranked {
  Var values, indices;  // indices: i32
};
// Over the last dim; a scalar is a row of one. Equal elements keep their order; NaN counts as
// larger than any number.
Ranked sort(Var x, bool descending = false, Loc loc = Loc::current());
// The k largest, largest first.
Ranked top_k(Var x, int64_t k, Loc loc = Loc::current());

}  // namespace tegula
