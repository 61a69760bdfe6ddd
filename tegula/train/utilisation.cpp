#include "tegula/train/utilisation.h"

#include "tegula/train/ranks.h"

namespace tegula {

Result<int64_t> recomputed_flops(const TrainConfig& config, const Target& target, int64_t planned,
                                 RankRange own) {
  TrainConfig whole = config;
  whole.checkpoint = "none", whole.blockwise = "off", whole.memory_bytes = 0;
  if (config.memory_bytes == 0 && config.checkpoint != "sqrt" && config.blockwise == "off")
    return int64_t{0};
  whole.tune = "off", whole.superopt = 0;  // sizes of kernels change no FLOPs
  const StepFunctions functions = TEGULA_TRY(build_step_functions(whole));
  std::vector<CompiledRanks> parts;
  for (const StepPart& p : parts_of_step(whole, functions))
    parts.push_back(TEGULA_TRY(compile_for_ranks(whole, functions, p.function, target, own)));
  std::vector<StepCost> costs;
  for (int64_t r = own.first; r < own.first + own.n; ++r)
    costs.push_back(TEGULA_TRY(step_cost(whole, plans_of_rank(parts, r))));
  return planned - TEGULA_TRY(cost_of_ranks(costs)).flops;
}

}  // namespace tegula
