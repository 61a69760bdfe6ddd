// Framework: the conventions by which a training step is executed, beyond its layout.
//
//   tegula         elementwise work inside kernels, logits never whole, weights of two bytes with
//                  f32 masters; a layer keeps what the project's own graph does
//   torch          every op by itself, as PyTorch executes them: f32 weights under autocast (with
//                  --optimizer adam-pure all in two bytes), logits whole; DDP in buckets
//   torch-compile  the same with compiled layers: elementwise work is fused
//   transformers   torch, with norms in f32 step by step
//   fsdp           torch with fully_shard: f32 shards, gathered in two bytes, reduced in four
//   torchtitan     fsdp with compiled layers
//   megatron       fused kernels, gradients summed in f32, logits whole, nothing hides unless asked
//   deepspeed      fused kernels, gradients of two bytes, logits whole
//
// A convention is a fact about code that can be read, a count of bytes, or measured on single
// calls; DDP's second copy of gradients was chosen with half of the executed steps in view. One
// factor a framework is from published runs.
#pragma once

#include <cstdint>
#include <string_view>

#include "tegula/base/result.h"

namespace tegula::planner {

// Logits: never whole, by chunks of tokens that are made again backward, whole.
enum class Loss : uint8_t { kFused, kChunked, kWhole };

// Selective recomputation makes these again. Scores: attention's core [Korthikanti et al. 2022,
// section 5]. Norms: norms, turned queries and keys, activations (--recompute-modules). Products:
// all but every other product and attention (torchtitan's policy for ops).
enum class Selective : uint8_t { kUsual, kScores, kNorms, kProducts };

struct Framework {
  std::string_view name;
  // Elementwise ops are kernels of their own, which read and write memory (torch_work.h).
  bool one_by_one = false;
  bool keeps_like_torch = false;  // each op what autograd saves for it
  // transformers' own code: a norm's casts, square, mean, root and products are kernels, of f32;
  // turned queries and keys are joined from halves.
  bool in_steps = false;
  // Whose weights are f32 and multiplied as copies of two bytes; else they have two themselves.
  bool has_f32_weights = false;
  Selective selective = Selective::kUsual;  // scores where attention is naive, else norms
  double fragmentation = 1.05;  // the most that its allocator reserves of a byte (reserve.h)
  // Stages of a pipeline: the table and the head count as a layer each (stages.h).
  bool counts_ends = false;
  bool is_sharded = false;    // fully_shard: its copies are gathered ones
  double gradient_bytes = 2;  // with weights of two bytes
  // Logits: bytes of an element that live at once, where they are whole, and those that its
  // loss reads and writes forward and backward; 0: they are never whole.
  double logit_bytes = 0, loss_forward = 0, loss_backward = 0;
  // The part of an exchange's time that is won where something else is computed meanwhile, and what
  // of it each message loses: it waits for multiprocessors to become free.
  double hides = 1, start_beside_s = 0;
  double message_bytes = 0;    // of gradients in one; 0: a layer's
  double gathers_a_layer = 1;  // of sharded weights: by the layer, or by the tensor
  // Times as long as all of that: published runs' seconds over those, the mean of reports, at most
  // 1.15 (bench/planner_published.py, with the error of a report from the others alone).
  double factor = 1;
};

// Framework null: the usual one.
Selective selective_of(const Framework* framework, bool flash);

// Null: `name` is empty. Error: lists them.
Result<const Framework*> find_framework(std::string_view name);

}  // namespace tegula::planner
