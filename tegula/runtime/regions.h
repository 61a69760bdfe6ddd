// Control flow at run time: how a step with regions runs their sub-plans.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "tegula/runtime/session.h"

namespace tegula {

// A bound step with regions. Their sessions have the memory of the step's workspace.
struct RegionStep {
  const Step* step = nullptr;
  std::span<const TensorRef> in, out;
  void* workspace = nullptr;
  std::span<const std::unique_ptr<Session>> regions;
  std::span<const int64_t> extents;  // of the plan's symbols
};

// Runs it: parameters and results of the sub-plans are bound to the step's tensors themselves (a
// row of them in a scan), so the only bytes copied are a carry's initial value and what `saves`
// asks for. Allocates nothing.
void run_region_step(const RegionStep& s);

}  // namespace tegula
