// Cross-entropy of a linear layer's logits that never holds them, for model code.
//
//   logits = x W^T (or x W), per token: lse = log of the sum of exp(logits), picked =
//   logits[target] loss of a token = lse - picked
//
// x: [..., d]; w: [v, d], or [d, v] if transposed; targets: [...] of i32 or i64. lse and picked are
// f32 (f64 for f64). A target that is `ignore_index` or lies outside [0, v) picks 0 and counts in
// no mean. Cost: that of one product x W^T plus 4 v + 2 per token, and no memory for logits.
#pragma once

#include "tegula/ops/math.h"

namespace tegula {

struct CrossEntropyOptions {
  bool is_transposed = false;  // w is [d, v]
  int64_t ignore_index = -100;
};

struct LinearCrossEntropy {
  Var lse, picked;
};
LinearCrossEntropy linear_cross_entropy(Var x, Var w, Var targets,
                                        const CrossEntropyOptions& options = {},
                                        Loc loc = Loc::current());

struct CrossEntropy {
  Var sum, count;  // scalars: of the losses, and of the tokens that are not ignored
};
CrossEntropy cross_entropy(Var x, Var w, Var targets, const CrossEntropyOptions& options = {},
                           Loc loc = Loc::current());
// Their mean; 0 if every token is ignored.
Var cross_entropy_loss(Var x, Var w, Var targets, const CrossEntropyOptions& options = {},
                       Loc loc = Loc::current());

// The same of logits [..., v] that are there already. With label_smoothing e, a loss is
// (1 - e)·(lse - logits[target]) + e·(lse - the mean of logits).
struct LogitsOptions {
  int64_t ignore_index = -100;
  double label_smoothing = 0;
};
CrossEntropy logits_cross_entropy(Var logits, Var targets, const LogitsOptions& options = {},
                                  Loc loc = Loc::current());
Var logits_cross_entropy_loss(Var logits, Var targets, const LogitsOptions& options = {},
                              Loc loc = Loc::current());

}  // namespace tegula
