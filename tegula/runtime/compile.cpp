#include "tegula/runtime/compile.h"

#include <chrono>

namespace tegula {

namespace {
using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point t) {
  return std::chrono::duration<double, std::milli>(Clock::now() - t).count();
}

// Can a kernel run this op on contiguous operands?
bool has_direct_kernel(const OpCall& call, const void* context) {
  const auto& options = *static_cast<const PlanOptions*>(context);
  auto refs = [](std::span<const Type> types) {
    std::vector<TensorRef> r;
    for (const Type& t : types) r.push_back(contiguous_ref(nullptr, t));
    return r;
  };
  const auto in = refs(call.in), out = refs(call.out);
  const KernelQuery query{call.attrs, in, out, nullptr, options.n_threads};
  return choose_kernel(*call.op, {&query, 1}, options);
}

Result<int64_t> planned_peak(const Module& module, const Function& f, const void* context) {
  auto copy = std::make_shared<Module>(module);
  const FuncId id = copy->add(f);
  const Plan plan = TEGULA_TRY(make_plan(copy, id, *static_cast<const PlanOptions*>(context)));
  return plan.arena_bytes;
}
}  // namespace

Result<Compiled> compile(const std::shared_ptr<Module>& module, FuncId function,
                         const CompileOptions& options) {
  Compiled out;
  PipelineOptions passes = options.passes;
  if (!passes.pass.has_direct_kernel) {
    passes.pass.has_direct_kernel = has_direct_kernel;
    passes.pass.kernel_context = &options.plan;
  }
  if (!passes.pass.planned_peak) {
    passes.pass.planned_peak = planned_peak;
    passes.pass.peak_context = &options.plan;
  }
  auto start = Clock::now();
  out.reports = TEGULA_TRY(run_passes(*module, function, passes));
  out.passes_ms = ms_since(start);
  start = Clock::now();
  out.plan = std::make_shared<Plan>(TEGULA_TRY(make_plan(module, function, options.plan)));
  out.plan_ms = ms_since(start);
  if (const int64_t budget = passes.pass.memory_bytes; budget > 0 && out.plan->arena_bytes > budget)
    return out_of_memory(cat((*module)[function].name, ": a budget of ", budget,
                             " bytes for activations, gradients and workspaces is too small: the "
                             "least that works as it is compiled is ",
                             out.plan->arena_bytes, " bytes; use that, or let more be recomputed"));
  return out;
}

}  // namespace tegula
