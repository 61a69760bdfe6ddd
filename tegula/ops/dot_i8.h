// A product of rows and weights that are both quantised, summed exactly:
//   y[m, n] = sx[m] · Σ_g scale[g, n] · (Σ_{k in g} x[m, k] · q[k, n]),  groups of e = k / groups
//
// x i8 [m, k], sx f32 [m], as `quantise` makes them of a layer's input, row by row; q and scale as
// dot_quantised has them: i8 [k, n], or of 4 bits u8 [k / 2, n], and f32 [groups, n] -> y [m, n]
// f32. The inner sum is an integer, then rounded to f32; groups are one ascending chain of fused
// multiply-adds from 0; the product with sx is rounded last. So bits depend on nothing but this.
// Cost: the weights' bytes once. Errors: what does not divide, more than 131071 of k in a group
// (the sum would leave 32 bits). No derivative: integers have none.
// Source: Jacob et al. 2018, section 2.2; a scale for every row of x: Yao et al. 2022, section 4.1.
#pragma once

#include "tegula/ops/math.h"

namespace tegula {

Var dot_i8(Var x, Var sx, Var q, Var scale, int bits = 8, Loc loc = Loc::current());

}  // namespace tegula
