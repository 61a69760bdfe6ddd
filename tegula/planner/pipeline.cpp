#include "tegula/planner/pipeline.h"

namespace tegula::planner {

namespace {

constexpr int64_t kMostEntries = int64_t{1} << 21;

double real(int64_t n) { return static_cast<double>(n); }

// One of a rank's stages: an even share of its layers, and the head on the last of all.
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
  const int64_t m = n_microbatches(pricer.job(), l), n_stages = l.pp * l.interleave;
  if (3 * m > kMostEntries / n_stages)
    return unsupported(
        cat(m, " micro-batches of ", n_stages, " stages are more than ", kMostEntries, " entries"));
  const ScheduleDef* def = TEGULA_TRY(find_schedule(turns_name(l.turns)));
  PipelineRun run;
  run.schedule = TEGULA_TRY(make_schedule(
      *def, {static_cast<int>(l.pp), static_cast<int>(n_stages), static_cast<int>(m), 1}));
  const LayerPrice& p = pricer.layer(l);
  std::vector<StagePrice> stages;
  for (int64_t stage = 0; stage < n_stages; ++stage) {
    const bool is_last_rank = stage % l.pp == l.pp - 1;
    const int64_t layers = is_last_rank ? price.last_layers : price.stage_layers;
    stages.push_back(
        stage_price(p, real(layers) / real(l.interleave), stage == n_stages - 1, price.memory));
  }
  run.chain = chain_of(run.schedule, stages);
  const Link link = pricer.stage_link(l);
  // Interleaved stages send while another's part runs; 1F1B waits for its sends.
  const Links links{link.seconds, link.bytes_per_s, l.turns == Turns::kInterleaved};
  run.simulated = TEGULA_TRY(
      simulate(run.chain.program, run.schedule, {.seconds = run.chain.seconds, .links = links}));
  return run;
}

}  // namespace tegula::planner
