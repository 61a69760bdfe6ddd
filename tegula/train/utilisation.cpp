#include "tegula/train/utilisation.h"

#include "tegula/train/ranks.h"

namespace tegula {

Result<int64_t> recomputed_flops(const TrainConfig& config, const Target& target, int64_t planned) {
  TrainConfig whole = config;
  whole.checkpoint = "none", whole.blockwise = "off", whole.memory_bytes = 0;
  if (config.memory_bytes == 0 && config.checkpoint != "sqrt" && config.blockwise == "off")
    return int64_t{0};
  whole.tune = "off";  // sizes of kernels change no FLOPs
  const StepFunctions functions = TEGULA_TRY(build_step_functions(whole));
  const bool one = whole.accumulate == 1;
  const CompiledRanks step = TEGULA_TRY(compile_for_ranks(
      whole, functions, one ? functions.train_step : functions.micro_step, target));
  CompiledRanks update;
  if (!one) update = TEGULA_TRY(compile_for_ranks(whole, functions, functions.update, target));
  std::vector<StepCost> costs;
  for (size_t r = 0; r < step.plans.size(); ++r)
    costs.push_back(
        TEGULA_TRY(step_cost(whole, *step.plans[r], one ? nullptr : update.plans[r].get())));
  return planned - TEGULA_TRY(cost_of_ranks(costs)).flops;
}

}  // namespace tegula
