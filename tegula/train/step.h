// The step functions of training, built as graphs: what one optimizer step computes.
//
//   train_step  tokens, targets, scalars, weights, state -> loss, grad_norm, weights', state'
// (in f16 the state has the loss's scale, train/loss_scale.h)
// With accumulation (n > 1) it has results "grad.<weight>" too and is not run, but its two parts
// (passes/split.h); gradient sums are donated state:
//   micro_step  tokens, targets, weights, sums -> loss, sums' = sums + gradient / n
//   update      scalars, weights, state, sums  -> grad_norm, weights', state', sums' = 0
//   eval_loss   tokens, targets, weights -> loss
#pragma once

#include "tegula/base/memory.h"
#include "tegula/runtime/compile.h"
#include "tegula/train/config.h"

namespace tegula {

struct StepFunctions {
  std::shared_ptr<Module> module;
  FuncId train_step = kNone;
  FuncId micro_step = kNone, update = kNone;  // accumulate > 1
  FuncId eval_loss = kNone;
  std::vector<WeightSpec> weights;
};

Result<StepFunctions> build_step_functions(const TrainConfig& config);

// The cost of one optimizer step by its plans: all its micro-batches and the update.
struct StepCost {
  int64_t flops = 0;
  int64_t bytes = 0;              // moved at least
  int64_t state_bytes = 0;        // weights, optimizer state and sums of gradients
  int64_t arena_bytes = 0;        // the larger plan's: they run in turns in one arena
  int64_t lower_bound_bytes = 0;  // of the arena, for this order of ops
  int64_t peak_bytes() const { return arena_bytes + state_bytes; }
};
// `step` is the plan of train_step (`update` is null), or that of micro_step and of update.
// Error: FLOPs or bytes of all micro-batches together are more than 64 bits count.
Result<StepCost> step_cost(const TrainConfig& config, const Plan& step, const Plan* update);

// The cost of all ranks together: FLOPs and bytes of all, memory of the rank that needs most.
Result<StepCost> cost_of_ranks(std::span<const StepCost> ranks);

// How they are compiled. Only train_step and micro_step have activations to recompute; a budget
// they do not fit is an error that names the least that works.
CompileOptions compile_options(const TrainConfig& config, const Target& target);

// Says why --blockwise changed nothing in train_step or micro_step, whose passes' reports these
// are. "": it did, or was not asked for.
std::string note_on_blocks(const TrainConfig& config, std::span<const PassReport> reports);

}  // namespace tegula
