// Mixture of experts: tokens into one bucket of bounded capacity per expert, and back.
//
//   expert_dispatch: buckets[e, p, :] = x[t, :] where experts[t, j] = e and positions[t, j] = p
//   expert_combine:  out[t, :] = the sum over j of weights[t, j] y[experts[t, j], positions[t, j],
//   :]
//
// x: [t, d]; experts: [t, k] of i32 or i64, token t's choices; -> buckets: [e, cap, d]; positions:
// i32 [t, k]; counts: i32 [e], the rows in use. Choices take a bucket's rows in the order of (t,
// j). One that finds its bucket full, or whose expert is out of range, is dropped: its position is
// -1 and it adds nothing to out, so that a token without any place gets 0 (a residual path keeps
// it). Rows not in use are 0. Everything depends on the operands alone, never on threads or ranks.
// Cost: dispatch moves t k rows at most; combine does 2 t k d FLOPs at most. [Lepikhin et al. 2020,
// section 2.2]
#pragma once

#include "tegula/ops/math.h"

namespace tegula {

struct Dispatched {
  Var buckets, positions, counts;
};
Dispatched expert_dispatch(Var x, Var experts, Dim n_experts, Dim capacity,
                           Loc loc = Loc::current());
// y: [e, cap, d]; weights: [t, k], f32 (f64 for f64) -> [t, d] of y's dtype.
Var expert_combine(Var y, Var experts, Var positions, Var weights, Loc loc = Loc::current());

}  // namespace tegula
