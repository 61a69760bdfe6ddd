#include "cli/plan_model.h"
#include "tegula/planner/print.h"
#include "tegula/train/ranks.h"

namespace tegula::cli {

namespace {

// The arena of a rank's micro-batch, or of its step where one micro-batch is all.
Result<int64_t> arena_of(const planner::Answer& a, const planner::Layout& l) {
  TrainConfig c = TEGULA_TRY(config_of_rank(a.preset.model, a.job, l));
  TEGULA_TRY(c.model.resolve());
  const StepFunctions f = TEGULA_TRY(build_step_functions(c));
  const FuncId id = c.accumulate > 1 ? f.micro_step : f.train_step;
  return TEGULA_TRY(plan_of_first_rank(c, f, id, Target::one_thread()))->arena_bytes;
}

}  // namespace

Result<std::string> plan_in_full(const planner::Answer& a) {
  if (a.preset.model.family.empty())
    return unsupported(
        cat(a.preset.model.name, " is not built here: it is counted and priced only"));
  std::string out =
      "\nplanned in full (this project's own graph on a CPU's kernels, the arena of a rank)\n";
  for (const planner::StepPrice& p : a.found.best) {
    const planner::Layout& l = p.layout;
    out += cat("  ", to_string(l), "\n     ");
    if (l.pp > 1 || l.ep > 1 || l.remat != planner::Remat::kNone || l.zero == 3) {
      out += "not planned here: stages, ranks of experts, recomputation, ZeRO 3\n";
      continue;
    }
    const int64_t arena = TEGULA_TRY(arena_of(a, l));
    planner::print(
        out, "%.2f GB of activations, gradients and workspaces; the search counted %.2f\n",
        static_cast<double>(arena) / 1e9, (p.memory.activations + p.memory.temporaries) / 1e9);
  }
  return out;
}

}  // namespace tegula::cli
