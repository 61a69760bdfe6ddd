#include <cstdio>

#include "cli/plan.h"
#include "tegula/ir/text.h"
#include "tegula/train/ranks.h"

namespace tegula::cli {

Status print_graph(const TrainConfig& config, const Target& target, std::string_view which) {
  const StepFunctions built = TEGULA_TRY(build_step_functions(config));
  FuncId f = config.accumulate > 1 ? built.micro_step : built.train_step;
  if (which == "rank" || config.mesh.n_ranks() > 1) {
    const CompiledRanks c = TEGULA_TRY(compile_for_ranks(config, built, f, target));
    if (which == "rank" && !c.functions.empty()) f = c.functions[0];
    for (const std::string& note : c.notes) std::printf("# %s\n", note.c_str());
  }
  std::fputs(to_text(module_of(*built.module, f)).c_str(), stdout);
  return {};
}

}  // namespace tegula::cli
