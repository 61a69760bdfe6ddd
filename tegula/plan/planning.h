// The planner's answers to what passes ask (passes/planning.h).
#pragma once

#include "tegula/passes/planning.h"
#include "tegula/plan/plan.h"

namespace tegula {

class PlanningFor final : public Planning {
 public:
  explicit PlanningFor(const PlanOptions& options) : options_(options) {}  // which must outlive it
  bool has_kernel(const OpCall& call) const override { return kernel_of(call) != nullptr; }
  // An op without a kernel has its reference's.
  std::string_view order_of(const OpCall& call) const override;
  Result<int64_t> peak_bytes(const Module& module, const Function& f) const override;

 private:
  const KernelDef* kernel_of(const OpCall& call) const;
  const PlanOptions& options_;
};

}  // namespace tegula
