// BoundStep: one step of a plan with its memory, ready to launch. Internal to runtime/.
#pragma once

#include <vector>

#include "tegula/base/memory.h"
#include "tegula/kernels/moves.h"
#include "tegula/plan/plan.h"

namespace tegula {

class Session;

struct BoundStep {
  std::vector<TensorRef> in, out;
  Attrs attrs;                            // the step's, with dims at the run's extents
  std::vector<Type> in_types, out_types;  // for references
  void* workspace = nullptr;
  void (*launch)(const KernelCall&) = nullptr;  // the kernel's, of a CPU
  bool is_empty = false;                        // at the run's extents no result has an element
  std::vector<std::unique_ptr<Session>> regions;
  std::vector<Move> moves;  // of one that starts in the background
};

// The op's own reference as a kernel, at the tensors' precision: slow, always there. in and out lie
// on the host; the FLOPs that it did.
int64_t run_reference(const Plan& plan, const Step& step, const BoundStep& bound,
                      std::span<const TensorRef> in, std::span<const TensorRef> out);

}  // namespace tegula
