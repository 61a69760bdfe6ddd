// Symmetric per-channel int8.
//
//   quantise:   scale[a] = max |x[a, …]| / 127,  q = round(x / scale) in [-127, 127]
//   dequantise: x = q · scale
//
// x: any shape, f32; q: the same, i8; scale: [extent of dim `axis`], f32. Rounding is half up; a
// channel of zeros has scale 0 and q 0. Error of a round trip: at most scale / 2 per element.
// quantise has no derivative; dequantise is linear in scale. Source: Jacob et al. 2018,
// section 2.1.
#pragma once

#include "tegula/ops/math.h"

namespace tegula {

struct Quantised {
  Var q, scale;
};
Quantised quantise(Var x, int axis, Loc loc = Loc::current());
Var dequantise(Var q, Var scale, int axis, Loc loc = Loc::current());

}  // namespace tegula
