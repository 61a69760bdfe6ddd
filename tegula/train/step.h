// The step functions of training, built as graphs: what one optimizer step computes.
//
//   train_step  tokens, targets, scalars, weights, state -> loss, grad_norm, weights', state'
// With accumulation (n > 1) it is two functions; gradient sums are donated state:
//   micro_step  tokens, targets, weights, sums -> loss, sums' = sums + gradient / n
//   update      scalars, weights, state, sums  -> grad_norm, weights', state', sums' = 0
//   eval_loss   tokens, targets, weights -> loss
#pragma once

#include <memory>

#include "tegula/runtime/compile.h"
#include "tegula/train/config.h"

namespace tegula {

struct StepFunctions {
  std::shared_ptr<Module> module;
  FuncId train_step = kNone;                  // accumulate == 1
  FuncId micro_step = kNone, update = kNone;  // accumulate > 1
  FuncId eval_loss = kNone;
  std::vector<WeightSpec> weights;
};

Result<StepFunctions> build_step_functions(const TrainConfig& config);

// How they are compiled. Only train_step and micro_step have activations to recompute; a budget
// they do not fit is an error that names the least that works.
CompileOptions compile_options(const TrainConfig& config, int n_threads);

}  // namespace tegula
