// Mixture of experts: tokens into one bucket of bounded capacity per expert and shard, and back.
//
//   expert_dispatch: buckets[e, s, p, :] = x[s, t, :]
//                    where experts[s, t, j] = e and positions[s, t, j] = p
//   expert_combine:  out[s, t, :] = the sum over j of
//                    weights[s, t, j] y[experts[s, t, j], s, positions[s, t, j], :]
//
// x: [s, t, d]; experts: [s, t, k] of i32 or i64, the choices of token t of shard s; -> buckets:
// [e, s, cap, d]; positions: i32 [s, t, k]; counts: i32 [s, e], the rows in use. Each shard has
// buckets of its own, so that what holds other shards need not be known. Choices take a bucket's
// rows in the order of (t, j). One that finds its bucket full, or whose expert is out of range, is
// dropped: its position is -1 and it adds nothing to out, so that a token without any place gets 0
// (a residual path keeps it). Rows not in use are 0. Everything depends on the operands alone,
// never on threads or ranks. Cost: dispatch moves s t k rows at most; combine does 2 s t k d FLOPs
// at most. [Lepikhin et al. 2020, section 2.2: shards are its groups]
#pragma once

#include "tegula/ops/math.h"

namespace tegula {

struct Dispatched {
  Var buckets, positions, counts;
};
Dispatched expert_dispatch(Var x, Var experts, Dim n_experts, Dim capacity,
                           Loc loc = Loc::current());
// y: [e, s, cap, d]; weights: [s, t, k], f32 (f64 for f64) -> [s, t, d] of y's dtype.
Var expert_combine(Var y, Var experts, Var positions, Var weights, Loc loc = Loc::current());

}  // namespace tegula
