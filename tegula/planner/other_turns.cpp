#include <algorithm>

#include "tegula/plan/schedule_check.h"
#include "tegula/planner/pipeline.h"

namespace tegula::planner {

namespace {

constexpr std::string_view kOthers[] = {"zero_bubble_v", "chimera", "dual_pipe", "tera_pipe"};
constexpr int64_t kSlices = 4;

// Stages that two ranks hold: each of them has its weights, gradients and state.
bool holds_twice(const Schedule& s) {
  return s.rank_of(0, 0) != s.rank_of(0, std::min(1, s.shape.n_micro_batches - 1));
}

Result<OtherTurns> run(StepPricer& pricer, const StepPrice& price, std::string_view name) {
  const ScheduleDef* def = TEGULA_TRY(find_schedule(name));
  const int64_t slices = def->takes_slices ? kSlices : 1;
  if (pricer.job().seqlen % slices != 0)
    return unsupported(cat(pricer.job().seqlen, " tokens are no ", slices, " slices"));
  const PipelineRun run = TEGULA_TRY(run_pipeline(pricer, price, *def, slices));
  const auto facts = TEGULA_TRY(check_schedule(run.schedule));
  OtherTurns t{std::string(name), 0, 0, ""};
  t.step_s = run.simulated.step_s + price.seconds.dp + price.seconds.optimizer;
  // In flight are micro-batches (or slices) of one stage's layers.
  const int64_t per_rank = run.schedule.shape.n_stages / price.layout.pp;
  const double kept = static_cast<double>(
      *std::max_element(facts.peak_in_flight.begin(), facts.peak_in_flight.end()));
  const double layers = static_cast<double>(std::max(price.stage_layers, price.last_layers)) /
                        static_cast<double>(per_rank);
  const double copies = holds_twice(run.schedule) ? 2 : 1;
  const MemoryBytes& m = price.memory;
  t.peak_bytes =
      copies * (m.weights + m.gradients + m.optimizer) + m.temporaries +
      kept * layers * pricer.layer(price.layout).activations.layer / static_cast<double>(slices);
  return t;
}

}  // namespace

std::vector<OtherTurns> other_turns(StepPricer& pricer, const StepPrice& price) {
  std::vector<OtherTurns> all;
  if (price.layout.pp == 1) return all;
  for (const std::string_view name : kOthers) {
    auto t = run(pricer, price, name);
    all.push_back(t.ok() ? std::move(*t) : OtherTurns{std::string(name), 0, 0, t.error().message});
  }
  return all;
}

}  // namespace tegula::planner
