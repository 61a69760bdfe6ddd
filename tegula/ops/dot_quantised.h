// A product with weights of 8 or 4 bits that are widened as they are read:
//   y[m, n] = Σ_k x[m, k] · (q[k, n] · scale[k / e, n]),  e = k / groups
//
// x [m, k] f32; q: i8 [k, n], or of 4 bits u8 [k / 2, n], a byte holding k (low half) and k + 1,
// each as q + 8; scale f32 [groups, n] -> y [m, n] f32. Every weight is rounded to f32, then
// chained as `dot` does (k_shards too): the bits are those of dot(x, dequantise(q, scale)). Cost:
// the weights' bytes once, and their m-fold products. Errors: what does not divide.
#pragma once

#include "tegula/ops/math.h"

namespace tegula {

Var dot_quantised(Var x, Var q, Var scale, int bits = 8, Loc loc = Loc::current());

}  // namespace tegula
