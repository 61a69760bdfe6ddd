#include "tegula/planner/pipeline.h"

#include "tegula/base/algorithm.h"

namespace tegula::planner {

namespace {

constexpr int64_t kMostEntries = int64_t{1} << 21;

// One of a rank's stages: its layers, and the head on the last of all.
StagePrice stage_price(const LayerPrice& p, double layers, bool is_last,
                       const MemoryBytes& memory) {
  StagePrice s;
  s.forward_s = layers * (p.forward.total() + p.tp_forward + p.cp_forward + p.ep);
  s.backward_s = layers * (p.input_backward.total() + p.recompute.total() + p.tp_backward +
                           p.tp_recompute + p.cp_backward + p.ep);
  s.weight_gradients_s = layers * p.weight_backward.total();
  if (is_last) {
    s.forward_s += p.last_forward.total() + p.tp_last / 2;
    s.backward_s += p.last_input_backward.total() + p.tp_last / 2;
    s.weight_gradients_s += p.last_weight_backward.total();
  }
  s.output_bytes = static_cast<int64_t>(p.boundary_bytes);
  s.saved_bytes =
      static_cast<int64_t>(layers * p.activations.layer + (is_last ? p.activations.last : 0));
  s.gradient_bytes = static_cast<int64_t>(memory.gradients);
  return s;
}

}  // namespace

Result<PipelineRun> run_pipeline(StepPricer& pricer, const StepPrice& price) {
  const Layout& l = price.layout;
  const ScheduleDef* def = TEGULA_TRY(find_schedule(turns_name(l.turns)));
  const int64_t m = n_microbatches(pricer.job(), l), per_rank = l.chunks();
  const int64_t n_stages = l.pp * per_rank;
  if (3 * m > kMostEntries / n_stages / l.slices)
    return unsupported(cat(m, " micro-batches of ", n_stages, " stages and ", l.slices,
                           " slices are more than ", kMostEntries, " entries"));
  PipelineRun run;
  run.schedule = TEGULA_TRY(make_schedule(*def, {static_cast<int>(l.pp), static_cast<int>(n_stages),
                                                 static_cast<int>(m), static_cast<int>(l.slices)}));
  const LayerPrice& p = pricer.layer(l);
  std::vector<StagePrice> stages;
  for (int64_t stage = 0; stage < n_stages; ++stage) {
    const int64_t layers = layers_of_stage(pricer.model(), pricer.job(), l, stage);
    stages.push_back(stage_price(p, real(layers), stage == n_stages - 1, price.memory));
  }
  run.chain = chain_of(run.schedule, stages);
  const Link link = pricer.stage_link(l);
  // Several stages of a rank send while another's part runs; 1F1B waits for its sends.
  const Links links{link.seconds, link.bytes_per_s, per_rank > 1 || l.copies() == 2};
  run.simulated = TEGULA_TRY(
      simulate(run.chain.program, run.schedule,
               {.seconds = run.chain.seconds, .links = links, .together = price.together}));
  return run;
}

std::vector<StepPrice> by_every_schedule(StepPricer& pricer, const ModelSpec& model,
                                         const Layout& layout) {
  std::vector<StepPrice> all;
  for (const Turns turns : kTurns) {
    Layout l = layout;
    l.turns = turns;
    l.interleave = turns == Turns::kInterleaved ? std::max<int64_t>(2, layout.interleave) : 1;
    l.slices = turns == Turns::kTeraPipe ? std::max<int64_t>(2, layout.slices) : 1;
    if (check_turns(l, model, pricer.job()).ok()) all.push_back(pricer.price(l));
  }
  return all;
}

}  // namespace tegula::planner
