#include "cli/plan_cut.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "tegula/runtime/compile.h"
#include "tegula/train/step.h"

namespace tegula::cli {

namespace {

// FLOPs of each layer, forward and backward: of what comes before them with the first, of the head
// with the last.
std::vector<double> layer_flops(const Module& m, const Function& step, int64_t n_layers) {
  std::vector<double> flops(static_cast<size_t>(n_layers));
  size_t at = 0;
  for (const Node& n : step.nodes) {
    if (n.phase == Phase::kUpdate) continue;
    const std::string& scope = m.scopes[n.origin.scope];
    if (scope.starts_with("layers."))
      at = static_cast<size_t>(std::strtoll(scope.c_str() + 7, nullptr, 10));
    else if (scope.starts_with("head"))
      at = flops.size() - 1;
    else if (scope.starts_with("embedding"))
      at = 0;
    if (at >= flops.size()) continue;
    const auto in = step.input_types(n), out = step.output_types(n);
    flops[at] += static_cast<double>(flops_of({n.op, &n.attrs, in, out, &m, n.regions}));
  }
  return flops;
}

// The cuts whose longest stage is shortest.
std::vector<std::string> balanced_cuts(const std::vector<double>& flops, int64_t n_stages) {
  const size_t layers = flops.size(), stages = static_cast<size_t>(n_stages);
  // longest[s][l]: of the first l layers in s stages; from[s][l]: where the last of them begins.
  std::vector<std::vector<double>> longest(stages + 1, std::vector<double>(layers + 1, HUGE_VAL));
  std::vector<std::vector<size_t>> from(stages + 1, std::vector<size_t>(layers + 1));
  longest[0][0] = 0;
  for (size_t s = 1; s <= stages; ++s)
    for (size_t l = s; l <= layers; ++l) {
      double last = 0;
      for (size_t begin = l; begin-- > s - 1;) {
        last += flops[begin];
        const double most = std::max(longest[s - 1][begin], last);
        if (most < longest[s][l]) longest[s][l] = most, from[s][l] = begin;
      }
    }
  std::vector<std::string> cuts(stages - 1);
  for (size_t s = stages, l = layers; s > 1; --s) l = from[s][l], cuts[s - 2] = cat("layers.", l);
  return cuts;
}

}  // namespace

Result<Cut> cut_step(const TrainConfig& c, const Target& target, const Schedule& schedule,
                     std::vector<std::string> cuts) {
  const StepFunctions f = TEGULA_TRY(build_step_functions(c));
  SplitOptions split;
  split.cuts =
      cuts.empty()
          ? balanced_cuts(layer_flops(*f.module, (*f.module)[f.train_step], c.model.n_layers),
                          schedule.shape.n_stages)
          : std::move(cuts);
  split.n_micro_batches = schedule.shape.n_micro_batches;
  split.weight_gradients_apart = schedule.weight_gradients_apart;
  const CompiledProgram compiled = TEGULA_TRY(
      compile_program(f.module, f.train_step, split, schedule, compile_options(c, target)));
  return Cut{*compiled.planned, std::move(split.cuts)};
}

}  // namespace tegula::cli
