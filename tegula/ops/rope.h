// Rotary position embedding, for model code.
//
//   (y1, y2) = (x1 cos a - x2 sin a, x1 sin a + x2 cos a), a = position theta^(-2 i / d)
//
// for pair i of every head: (x[i], x[i + d/2]), or (x[2i], x[2i + 1]) if interleaved.
// x: [b, s, h, d], d even; positions: [s] or [b, s] of i32 or i64, invalid: 0, 1, 2, …
// For contexts longer than those that were trained, the angle of pair i is divided by divisors[i]
// (to 2^-40; none: by 1): linear scaling, Llama 3.1's, YaRN's and LongRoPE's are such lists.
// Numerics: angles in f64, since an f32 angle at position 10^5 is off by 10^-2; the rest in f32
// (f64 for f64). Cost: 6 FLOPs a pair. [Su et al. 2021, section 3.2.2]
#pragma once

#include <span>

#include "tegula/ops/math.h"

namespace tegula {

Var rope(Var x, Var positions, double theta = 10000, bool is_interleaved = false,
         std::span<const double> divisors = {}, Loc loc = Loc::current());

}  // namespace tegula
