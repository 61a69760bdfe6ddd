#include "tegula/train/stage_cuts.h"

#include <cmath>
#include <cstdlib>

#include "tegula/base/algorithm.h"
#include "tegula/plan/step_seconds.h"
#include "tegula/train/step.h"

namespace tegula {

namespace {

// Seconds of each layer by the plan of the whole step, forward and backward: of what comes before
// them with the first, of the head with the last.
std::vector<double> layer_seconds(const Plan& plan, int64_t n_layers) {
  std::vector<double> seconds(static_cast<size_t>(n_layers));
  size_t at = 0;
  for (const Step& s : plan.steps) {
    if (s.phase == Phase::kUpdate) continue;
    if (s.scope.starts_with("layers."))
      at = static_cast<size_t>(std::strtoll(s.scope.c_str() + 7, nullptr, 10));
    else if (s.scope.starts_with("head"))
      at = seconds.size() - 1;
    else if (s.scope.starts_with("embedding"))
      at = 0;
    if (at < seconds.size()) seconds[at] += seconds_of(plan.target, s);
  }
  return seconds;
}

// Where each of `n_stages` stages of neighbouring layers begins, so that Σ cost(begin, end) or,
// with `is_largest`, the largest of them is least.
template <class Cost>
std::vector<size_t> best_begins(size_t n_layers, size_t n_stages, bool is_largest, Cost cost) {
  // least[s][l]: of the first l layers in s stages; from[s][l]: where the last of them begins.
  std::vector<std::vector<double>> least(n_stages + 1, std::vector<double>(n_layers + 1, HUGE_VAL));
  std::vector<std::vector<size_t>> from(n_stages + 1, std::vector<size_t>(n_layers + 1));
  least[0][0] = 0;
  for (size_t s = 1; s <= n_stages; ++s)
    for (size_t end = s; end <= n_layers; ++end)
      for (size_t begin = end; begin-- > s - 1;) {
        const double before = least[s - 1][begin], own = cost(begin, end);
        const double all = is_largest ? std::max(before, own) : before + own;
        if (all < least[s][end]) least[s][end] = all, from[s][end] = begin;
      }
  std::vector<size_t> begins(n_stages);
  for (size_t s = n_stages, end = n_layers; s > 0; --s) begins[s - 1] = end = from[s][end];
  return begins;
}

// The cuts whose slowest stage is fastest, and of those the most even ones.
std::vector<std::string> balanced_cuts(const std::vector<double>& seconds, int64_t n_stages) {
  const size_t layers = seconds.size(), stages = static_cast<size_t>(n_stages);
  std::vector<double> until(layers + 1);
  for (size_t l = 0; l < layers; ++l) until[l + 1] = until[l] + seconds[l];
  const auto time = [&](size_t begin, size_t end) { return until[end] - until[begin]; };
  const std::vector<size_t> fastest = best_begins(layers, stages, true, time);
  double slowest = 0;
  for (size_t s = 0; s < stages; ++s)
    slowest = std::max(slowest, time(fastest[s], s + 1 < stages ? fastest[s + 1] : layers));
  // Equal layers' sums differ in their last bits.
  const double most = slowest * (1 + 1e-9);
  const std::vector<size_t> even =
      best_begins(layers, stages, false, [&](size_t begin, size_t end) {
        const double t = time(begin, end);
        return t <= most ? t * t : HUGE_VAL;
      });
  std::vector<std::string> cuts;
  for (size_t s = 1; s < stages; ++s) cuts.push_back(cat("layers.", even[s]));
  return cuts;
}

}  // namespace

Result<std::vector<std::string>> balanced_stages(const Module& module, FuncId step,
                                                 const TrainConfig& config, const Target& target,
                                                 int n_stages) {
  const auto whole = std::make_shared<Module>(module);
  const Compiled compiled = TEGULA_TRY(compile(whole, step, compile_options(config, target)));
  return balanced_cuts(layer_seconds(*compiled.plan, config.model.n_layers), n_stages);
}

}  // namespace tegula
