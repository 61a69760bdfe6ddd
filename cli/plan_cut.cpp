#include "cli/plan_cut.h"

#include "tegula/runtime/compile.h"
#include "tegula/train/stage_cuts.h"
#include "tegula/train/step.h"

namespace tegula::cli {

Result<Cut> cut_step(const TrainConfig& c, const Target& target, const Schedule& schedule,
                     std::vector<std::string> cuts) {
  const StepFunctions f = TEGULA_TRY(build_step_functions(c));
  const FuncId step = schedule.trains ? f.train_step : f.eval_loss;
  SplitOptions split;
  split.cuts = std::move(cuts);
  if (split.cuts.empty())
    split.cuts = TEGULA_TRY(balanced_stages(*f.module, step, c, target, schedule.shape.n_stages));
  split.n_micro_batches = schedule.shape.n_micro_batches;
  split.weight_gradients_apart = schedule.weight_gradients_apart;
  const CompiledProgram compiled =
      TEGULA_TRY(compile_program(f.module, step, split, schedule, compile_options(c, target)));
  return Cut{*compiled.planned, std::move(split.cuts)};
}

}  // namespace tegula::cli
