// Optimizers as graph maths: one update of every weight from its gradient.
//
//   AdamW  [Loshchilov and Hutter 2019, Algorithm 2]
//     m = b1 m + (1-b1) g,  v = b2 v + (1-b2) g²
//     w = w − lr (m c1 / (sqrt(v c2) + eps) + decay w),  c1 = 1/(1−b1^t), c2 = 1/(1−b2^t)
//   momentum  m = b1 m + g, w = w − lr (m + decay w);   sgd  w = w − lr (g + decay w)
// Decay applies to matrices only (WeightSpec::decays). Clipping scales all gradients by
// min(1, clip / ‖g‖₂) [Pascanu et al. 2013].
#pragma once

#include <string>
#include <vector>

#include "tegula/models/model.h"

namespace tegula {

struct OptimizerConfig {
  std::string name = "adamw";  // adamw, momentum, sgd
  double beta1 = 0.9;
  double beta2 = 0.99;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double clip = 1.0;  // 0: none
};

// Scalars that change every step: parameters of the step function, set by the trainer.
struct StepScalars {
  Var lr, c1, c2;
  static StepScalars params(Builder& b);
};

// The next value of the state parameter of that name, which takes its memory.
void set_state(Builder& b, const std::string& name, Var v);

// Whether the update is done: one whose gradients have a norm that is no number or infinite changes
// no weight and no state.
Var is_finite_norm(Var norm);

// Adds state parameters ("adam.m.<weight>", …), results and donations for every weight; returns the
// gradient norm before clipping. Exact: the norm is one that ranks may share out in any way
// (order_free_norm.h).
Var apply_optimizer(Builder& b, const OptimizerConfig& config, const StepScalars& scalars,
                    const std::vector<WeightSpec>& specs, const std::vector<Var>& weights,
                    std::vector<Var> grads, bool is_exact = false);

}  // namespace tegula
