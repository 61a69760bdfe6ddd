// Program: a step as several functions and what flows between them.
//
// A part is one function of the module. A flow is a value that one part makes and others read: a
// result of the first and a parameter of the others, all of the flow's name. The part that makes it
// has a parameter of that name too, donated to the result, so that whoever runs the part says where
// the value lies and nothing is copied.
//
// Parts of one stage and micro-batch run in the order of their kinds; forward parts from the first
// stage to the last, backward parts from the last to the first, and the three or five parts of
// the update after all micro-batches.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tegula/ir/module.h"

namespace tegula {

enum class PartKind : uint8_t {
  kWhole,           // forward and backward of a step that has one stage
  kForward,         // F: activations
  kBackward,        // B: gradients of the stage's input; with no W, of its weights too
  kWeightGradient,  // W: what is left of the backward part, which no other stage waits for
  kFirstNorm,       // what is asked of the stage's gradients first, where the norm asks twice: the
                    // largest, by which squares are scaled
  kFirstTotal,      // what is known of it once for all stages
  kNorm,            // what the whole step wants to know of the stage's gradients
  kTotal,           // what is known once for all stages: the gradient's norm, whether it is finite
  kUpdate,          // U: new weights and optimizer state
};
// "whole", "forward", …
std::string_view name_of(PartKind kind);
// Once for each micro-batch, or once a step?
constexpr bool is_per_micro_batch(PartKind kind) { return kind <= PartKind::kWeightGradient; }

struct Part {
  PartKind kind = PartKind::kWhole;
  int stage = 0;
  FuncId function = kNone;
};

struct Flow {
  std::string name;
  Type type;
  int from = 0;         // part
  std::vector<int> to;  // parts, in order
  bool is_sum = false;  // over micro-batches: state of the parts, which lies where it is made
};

struct Program {
  int n_stages = 1;
  int n_micro_batches = 1;
  std::vector<Part> parts;  // in an order in which they can run
  std::vector<Flow> flows;

  int find(PartKind kind, int stage) const;  // -1: there is none
};

}  // namespace tegula
