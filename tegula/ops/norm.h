// Normalisation over the last dim, for model code.
//
//   layer_norm: y = (x - mean) rstd w + b, rstd = 1/sqrt(var + eps), var = mean((x - mean)^2)
//   rms_norm:   y = x rstd w,              rstd = 1/sqrt(mean(x^2) + eps)
//
// x: [..., d]; weight, bias: [d], of x's dtype. Statistics are f32 (f64 for f64), whatever x is.
#pragma once

#include "tegula/ops/math.h"

namespace tegula {

// Without a bias: an invalid Var.
Var layer_norm(Var x, Var weight, Var bias, double eps = 1e-5, Loc loc = Loc::current());
Var rms_norm(Var x, Var weight, double eps = 1e-5, Loc loc = Loc::current());

}  // namespace tegula
