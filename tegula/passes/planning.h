// Passes ask the layers above them which kernels there are, and what a plan would need.
#pragma once

#include "tegula/base/result.h"
#include "tegula/ir/opdef.h"

namespace tegula {

// Answers as if every op had a kernel of one order, and a plan's peak were the bytes live at once;
// plan/planning.h asks the kernels and the planner.
class Planning {
 public:
  virtual ~Planning() = default;
  // Can a kernel run this op on contiguous operands?
  virtual bool has_kernel(const OpCall& call) const;
  // The numeric order in which the kernel that runs this op forms its sums (kernels/kernel.h);
  // empty: it declares none.
  virtual std::string_view order_of(const OpCall& call) const;
  // The bytes of the arena in a plan of f, a function of this module or one that may join it.
  virtual Result<int64_t> peak_bytes(const Module& module, const Function& f) const;
};

}  // namespace tegula
