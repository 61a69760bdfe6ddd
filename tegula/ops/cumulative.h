// Running results along one dim, for model code. Each is one ascending chain per line.
#pragma once

#include "tegula/ops/math.h"

namespace tegula {

// y_i = a_i·y_{i-1} + b_i with y before the first = 0; in reverse, y_i = a_i·y_{i+1} + b_i. The
// first of a is of no consequence. It is its own gradient, run backwards.
Var linear_recurrence(Var a, Var b, int dim, bool reverse = false, Loc loc = Loc::current());

// The product of everything up to each element (in reverse: from it on). Gradients hold at zeros.
Var cumprod(Var x, int dim, bool reverse = false, Loc loc = Loc::current());

// The largest (smallest) element so far and its index (i32), the latest among equals; from the
// first NaN on the latest NaN. Gradients go to that index.
struct Running {
  Var values, indices;
};
Running cummax(Var x, int dim, bool reverse = false, Loc loc = Loc::current());
Running cummin(Var x, int dim, bool reverse = false, Loc loc = Loc::current());

}  // namespace tegula
