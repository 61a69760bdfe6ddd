// Cross-entropy straight from the last hidden state: the logits are never held.
#pragma once

#include "tegula/ir/builder.h"

namespace tegula {

struct LinearCrossEntropy {
  Var lse;     // f32 [...]: log Σ_v exp(x·w_v)
  Var picked;  // f32 [...]: x·w_target; 0 for targets outside [0, v)
};
// x[..., d], w[v, d], targets[...] (i32 or i64). Per token, loss = lse − picked.
LinearCrossEntropy linear_cross_entropy(Var x, Var w, Var targets, Loc loc = Loc::current());

// Mean of lse − picked over the tokens whose target is not negative (a negative one is ignored); 0
// if there are none. f32 scalar.
Var cross_entropy_loss(Var x, Var w, Var targets, Loc loc = Loc::current());

}  // namespace tegula
