// Slices whose place is known only at run time, for model code.
#pragma once

#include "tegula/ops/math.h"

namespace tegula {

// The part of x of that shape at `starts` (i64 scalars, one per dim), clamped to lie inside x.
Var dynamic_slice(Var x, std::span<const Var> starts, const Shape& size, Loc loc = Loc::current());
// x with `update` written at `starts`, clamped to lie inside. Donated state is updated in place.
Var dynamic_update_slice(Var x, Var update, std::span<const Var> starts, Loc loc = Loc::current());

// The first index of each dim, clamped: for references and kernels.
inline int64_t clamped_start(int64_t start, int64_t extent, int64_t size) {
  return std::max<int64_t>(0, std::min(start, extent - size));
}

}  // namespace tegula
