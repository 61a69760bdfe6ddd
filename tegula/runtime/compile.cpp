#include "tegula/runtime/compile.h"

#include <limits>
#include <map>

#include "tegula/base/algorithm.h"
#include "tegula/base/clock.h"
#include "tegula/ir/hash.h"
#include "tegula/kernels/device.h"
#include "tegula/passes/shard_check.h"
#include "tegula/plan/collectives.h"
#include "tegula/plan/planning.h"
#include "tegula/runtime/superopt_trial.h"

namespace tegula {

extern const PassDef superopt_pass;

namespace {

Status check(const std::shared_ptr<Module>& module, FuncId f, std::string_view what) {
  if (!module) return invalid_argument(cat(what, ": there is no module"));
  return check_function(*module, f, what);
}

// The plan of a function that the passes rewrote, which takes no smaller extents than it did
// before: a window that no longer fits is refused, though what the window op became would run.
Result<std::shared_ptr<const Plan>> plan_rewritten(const std::shared_ptr<Module>& module,
                                                   FuncId function, const PlanOptions& options,
                                                   const std::vector<LeastExtent>& least) {
  auto plan = std::make_shared<Plan>(TEGULA_TRY(make_plan(module, function, options)));
  for (size_t s = 0; s < least.size(); ++s)
    if (least[s].extent > plan->least[s].extent) plan->least[s] = least[s];
  return std::shared_ptr<const Plan>(std::move(plan));
}

// Times what the table lacks and plans anew with what was found. Tunings change workspaces: a plan
// that would no longer keep to the budget is not taken.
Status tune(const std::shared_ptr<Module>& module, FuncId function, const CompileOptions& options,
            const PlanOptions& plan_options, const std::vector<LeastExtent>& least,
            TuningTable& table, Compiled& out) {
  const Stopwatch watch;
  Rank rank(plan_options.target.n_threads);
  const int n = TEGULA_TRY(tune_plan(*out.plan, rank, options.tune.mode, table));
  if (n > 0) {
    if (const Status st = table.save(); !st.ok())
      out.notes.push_back(cat("tunings are not kept: ", st.error().message));
    auto plan = TEGULA_TRY(plan_rewritten(module, function, plan_options, least));
    const int64_t budget = options.passes.pass.memory_bytes;
    if (budget == 0 || plan->arena_bytes <= budget || plan->arena_bytes <= out.plan->arena_bytes)
      out.plan = std::move(plan);
    else
      out.notes.push_back("tuned kernels need more memory than the budget: not used");
  }
  out.tune_ms = watch.ms();
  if (n > 0)
    out.notes.push_back(cat("timed the sizes of ", n, " kernel calls for ",
                            static_cast<int64_t>(out.tune_ms), " ms; kept in ",
                            table.path().empty() ? "memory" : table.path()));
  return {};
}

// Passes ask the plan that is being made, unless the caller said whom to ask.
void ask(PipelineOptions& passes, const PlanOptions& plan, const Planning& planning) {
  passes.pass.target = &plan.target;
  if (!passes.pass.planning) passes.pass.planning = &planning;
}

// Who times what --superopt finds; null: a machine that is not here, which is priced.
std::unique_ptr<MachineTrial> machine_trial(const CompileOptions& options) {
  if (options.superopt_seconds == 0) return nullptr;
  const Target& t = options.plan.target;
  const auto device = t.device == DeviceKind::kCpu ? Result<Device*>(nullptr) : open_device();
  if (!device.ok() || !t.runs_on(*device ? (*device)->target() : Target::this_cpu()).ok())
    return nullptr;
  return std::make_unique<MachineTrial>(options, *device);
}

void save(const std::unique_ptr<MachineTrial>& trial, std::vector<std::string>& notes) {
  if (const Status st = trial ? trial->save() : Status(); !st.ok())
    notes.push_back(cat("rewritings are not kept: ", st.error().message));
}

Result<Compiled> compile_once(const std::shared_ptr<Module>& module, FuncId function,
                              const CompileOptions& options) {
  Compiled out;
  PipelineOptions passes = options.passes;
  PlanOptions plan = options.plan;
  TuningTable table;
  if (options.tune.mode != TuneMode::kOff) {
    table = TuningTable(tuning_directory(options.tune), machine_name());
    if (!table.warning().empty()) out.notes.push_back(table.warning());
    plan.tunings = &table;
  }
  const PlanningFor planning(plan);
  ask(passes, plan, planning);
  passes.pass.recomputed = &out.recomputed;
  const auto trial = options.trial ? nullptr : machine_trial(options);
  Superoptimise superopt{.seconds = options.superopt_seconds,
                         .rules = options.rules.get(),
                         .passes = options.passes.passes,
                         .from = passes.from,
                         .trial = trial ? trial.get() : options.trial,
                         .found = &out.rewritten};
  if (options.superopt_seconds > 0) passes.pass.superopt = &superopt;
  const auto least = TEGULA_TRY(least_extents(*module, (*module)[function]));
  const Stopwatch watch;
  // A cut function has been through the search's phase: it is searched now, as it will run.
  if (superopt.seconds > 0 && passes.from > superopt_pass.phase)
    TEGULA_TRY(run_pass(*module, function, superopt_pass, passes.pass));
  out.reports = TEGULA_TRY(run_passes(*module, function, passes));
  out.passes_ms = watch.ms();
  if (superopt.seconds > 0) {
    const auto lines = out.rewritten.lines();
    out.notes.insert(out.notes.end(), lines.begin(), lines.end());
  }
  save(trial, out.notes);
  const Stopwatch plan_watch;
  out.plan = TEGULA_TRY(plan_rewritten(module, function, plan, least));
  out.plan_ms = plan_watch.ms();
  if (plan.tunings) TEGULA_TRY(tune(module, function, options, plan, least, table, out));
  return out;
}

}  // namespace

Result<Compiled> compile(const std::shared_ptr<Module>& module, FuncId function,
                         const CompileOptions& options) {
  TEGULA_TRY(check(module, function, "compile"));
  if (options.superopt_seconds > 0 && options.passes.passes.find("-superopt") != std::string::npos)
    return invalid_argument("--superopt is asked for and --passes=-superopt leaves it out");
  const PassOptions& pass = options.passes.pass;
  const int64_t budget = pass.memory_bytes;
  if (budget == 0) return compile_once(module, function, options);
  // A plan under a budget need not be smaller (loss_grads): as it is without one, first.
  int64_t least = std::numeric_limits<int64_t>::max();
  if (pass.remat == Remat::kNone) {
    const Module before = *module;
    CompileOptions free = options;
    free.passes.pass.memory_bytes = 0;
    Compiled out = TEGULA_TRY(compile_once(module, function, free));
    if (out.plan->arena_bytes <= budget) return out;
    least = out.plan->arena_bytes;
    *module = before;
  }
  Compiled out = TEGULA_TRY(compile_once(module, function, options));
  if (out.plan->arena_bytes <= budget) return out;
  return out_of_memory(cat((*module)[function].name, ": a budget of ", budget,
                           " bytes for activations, gradients and workspaces is too small: the "
                           "least that works as it is compiled is ",
                           std::min(least, out.plan->arena_bytes),
                           " bytes; use that, or let more be recomputed"));
}

Result<CompiledProgram> compile_program(const std::shared_ptr<Module>& module, FuncId step,
                                        const SplitOptions& split_options, const Schedule& schedule,
                                        const CompileOptions& options) {
  TEGULA_TRY(check(module, step, "compile_program"));
  const PassOptions& pass = options.passes.pass;
  if (pass.remat != Remat::kNone || pass.memory_bytes > 0)
    return unsupported(
        "a step that is cut into stages keeps what flows between them: leave out --memory and "
        "--checkpoint, or take more micro-batches");
  CompiledProgram out;
  CompileOptions o = options;
  const PlanningFor planning(options.plan);
  ask(o.passes, options.plan, planning);
  o.passes.until = PassPhase::kPartition;
  out.reports = TEGULA_TRY(run_passes(*module, step, o.passes));
  Program program = TEGULA_TRY(split(*module, step, split_options));
  o.passes.from = PassPhase::kPartition, o.passes.until = kAllPhases;
  std::vector<std::shared_ptr<const Plan>> plans;
  for (const Part& part : program.parts) {
    Compiled c = TEGULA_TRY(compile(module, part.function, o));
    out.reports.insert(out.reports.end(), c.reports.begin(), c.reports.end());
    plans.push_back(std::move(c.plan));
  }
  out.planned = std::make_shared<PlannedProgram>(
      TEGULA_TRY(plan_program(std::move(program), std::move(plans), schedule)));
  return out;
}

namespace {

Result<CompiledRanks> compile_some(const std::shared_ptr<Module>& module, FuncId step,
                                   const ShardOptions& shard_options, const CompileOptions& options,
                                   RankRange own) {
  TEGULA_TRY(check(module, step, "compile_ranks"));
  CompiledRanks out;
  out.mesh = shard_options.mesh, out.first_rank = own.first;
  CompileOptions o = options;
  const PlanningFor planning(options.plan);
  ask(o.passes, options.plan, planning);
  const Stopwatch watch;
  o.passes.until = PassPhase::kPartition;
  out.reports = TEGULA_TRY(run_passes(*module, step, o.passes));
  out.sharded = TEGULA_TRY(shard(*module, (*module)[step], shard_options));
  TEGULA_TRY(check_shardings(*module, (*module)[step], out.sharded));
  module->mesh = out.mesh, (*module)[step].shardings = out.sharded.values;
  for (const Param& p : (*module)[step].params) out.params.push_back(out.sharded.values[p.value]);
  out.passes_ms = watch.ms();
  o.passes.from = PassPhase::kPartition, o.passes.until = kAllPhases;
  // One for all ranks: blocks that are alike become alike.
  const auto trial = machine_trial(o);
  o.trial = trial.get();
  std::map<uint64_t, Compiled> known;
  const int64_t end = own.n < 0 ? out.mesh.n_ranks() : own.first + own.n;
  for (int64_t r = own.first; r < end; ++r) {
    const FuncId f = TEGULA_TRY(partition(*module, step, out.sharded, r));
    Compiled& c = known[hash_of(*module, (*module)[f])];
    if (!c.plan) {
      c = TEGULA_TRY(compile(module, f, o));
      if (r == own.first) {
        out.reports.insert(out.reports.end(), c.reports.begin(), c.reports.end());
        out.notes = c.notes;
      }
      out.passes_ms += c.passes_ms, out.plan_ms += c.plan_ms;
    }
    out.plans.push_back(c.plan), out.functions.push_back(f);
    out.rewritten.push_back(c.rewritten);
  }
  save(trial, out.notes);
  return out;
}

}  // namespace

Result<CompiledRanks> compile_ranks(const std::shared_ptr<Module>& module, FuncId step,
                                    const ShardOptions& shard, const CompileOptions& options,
                                    RankRange own) {
  CompiledRanks out = TEGULA_TRY(compile_some(module, step, shard, options, own));
  TEGULA_TRY(check_collectives(out.mesh, out.plans, out.notes));
  return out;
}

Status check_collectives(const Mesh& mesh, std::span<const std::shared_ptr<const Plan>> plans,
                         std::vector<std::string>& notes) {
  const Target& target = plans[0]->target;
  for (const Step& s : plans[0]->steps)
    if (s.op->collective && !s.kernel) {
      if (target.device != DeviceKind::kCpu) {
        const std::string note = cat(target.name, " has no kernel for ", s.op->name, " over ",
                                     s.attrs.str("axis"), " yet: what ranks compute, hold and ",
                                     "send is planned, and they run on CPUs alone");
        if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(note);
        break;
      }
      return unsupported(cat("no kernel of ", target.name, " runs ", s.op->name, " of ",
                             s.in[0].type, " over the ", s.attrs.i("ranks"), " ranks of ",
                             s.attrs.str("axis"), ": an axis has at most 64"));
    }
  if (static_cast<int64_t>(plans.size()) < mesh.n_ranks()) return {};
  return compare_collectives(mesh, plans);
}

Result<std::shared_ptr<const Plan>> compile_first_rank(const std::shared_ptr<Module>& module,
                                                       FuncId step, const ShardOptions& shard,
                                                       const CompileOptions& options) {
  return TEGULA_TRY(compile_some(module, step, shard, options, {0, 1})).plans[0];
}

}  // namespace tegula
