// Padding to a size, for gradients of ops that take a part of a dim.
#pragma once

#include "tegula/ir/builder.h"

namespace tegula {

// x with `lo` elements before and `interior` between its own along `dim`, and as many after them as
// make it `size`, all of `value`. Unlike `pad` it may leave a different number after them in every
// run.
Var pad_to(Var x, int dim, int64_t lo, Dim size, int64_t interior, double value,
           Loc loc = Loc::current());

}  // namespace tegula
