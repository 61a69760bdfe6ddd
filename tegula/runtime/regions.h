// Control flow at run time: how a step with regions runs their sub-plans.
#pragma once

#include <span>

#include "tegula/base/memory.h"
#include "tegula/runtime/session.h"

namespace tegula {

// How a region step's parts are executed: at once, or put down for a device.
class RegionRunner {
 public:
  virtual ~RegionRunner() = default;
  virtual Status run(Session& region, std::span<const int64_t> extents) = 0;
  // Bytes from one view into another of the same shape and dtype.
  virtual Status copy(const TensorRef& from, const TensorRef& to) = 0;
  // A bool where it lies.
  virtual Result<bool> read(const void* flag) = 0;
};

// A bound step with regions. Their sessions have the memory of the step's workspace.
struct RegionStep {
  const Step* step = nullptr;
  std::span<const TensorRef> in, out;
  void* workspace = nullptr;
  std::span<const std::unique_ptr<Session>> regions;
  std::span<const int64_t> extents;  // of the plan's symbols
};

// Runs it, on a CPU with null for the runner: parameters and results of the sub-plans are bound to
// the step's tensors themselves (a row of them in a scan), so the only bytes copied are a carry's
// initial value and what `saves` asks for. Allocates nothing there.
Status run_region_step(const RegionStep& s, RegionRunner* runner = nullptr);

// Does the data decide what runs: which branch, how many rounds?
bool is_decided_by_data(const OpDef& op);

}  // namespace tegula
