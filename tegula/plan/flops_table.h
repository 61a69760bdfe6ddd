// FLOPs of a training step by phase, by layer and by op.
//
// Every FLOP of the plans stands in one cell: the rows of `layers` and those of `ops` each sum to
// `total`, which is Plan::flops(). What is recomputed counts as backward. A loss computed together
// with its gradients counts as forward what the loss alone takes.
//
// A step belongs to the layer that its scope names (places.h). An update stands where its weight is
// first used.
#pragma once

#include <string>
#include <vector>

#include "tegula/plan/plan.h"

namespace tegula {

struct FlopsRow {
  std::string name;
  int64_t forward = 0, backward = 0, update = 0;
  int64_t sum() const { return forward + backward + update; }
};

struct FlopsTable {
  FlopsRow total{"total"};
  std::vector<FlopsRow> layers, ops;  // in the order of the model; by falling FLOPs
  // The plan's FLOPs, so many times.
  void add(const Plan& plan, int64_t times);
  void sort();
};

}  // namespace tegula
