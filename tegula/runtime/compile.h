// compile: a function of a module -> a plan, through the passes. The one path for every user:
// train, generate, eager arrays and tests.
#pragma once

#include <memory>
#include <string>

#include "tegula/passes/pipeline.h"
#include "tegula/plan/plan.h"
#include "tegula/runtime/tuner.h"

namespace tegula {

struct CompileOptions {
  PipelineOptions passes;
  PlanOptions plan;
  TuneOptions tune;
};

struct Compiled {
  std::shared_ptr<const Plan> plan;
  std::vector<PassReport> reports;
  double passes_ms = 0;
  double plan_ms = 0;
  double tune_ms = 0;
  std::vector<std::string> notes;  // of the tuner, for people
};

// Rewrites the function in place and plans it.
Result<Compiled> compile(const std::shared_ptr<Module>& module, FuncId function,
                         const CompileOptions& options);

}  // namespace tegula
