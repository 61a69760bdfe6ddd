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

// Of one of n slices of tokens: launches are not shared out.
void slice(const LayerPrice& p, double layers, int64_t n, StagePrice& s) {
  const auto share = [&](double& seconds, double launch_s) {
    seconds = (seconds - launch_s) / real(n) + launch_s;
  };
  share(s.forward_s, layers * p.forward.launch);
  share(s.backward_s, layers * (p.input_backward.launch + p.recompute.launch));
  share(s.weight_gradients_s, layers * p.weight_backward.launch);
  s.output_bytes /= n, s.saved_bytes /= n;
}

}  // namespace

Result<PipelineRun> run_pipeline(StepPricer& pricer, const StepPrice& price, const ScheduleDef& def,
                                 int64_t n_slices) {
  const Layout& l = price.layout;
  const int64_t m = n_microbatches(pricer.job(), l);
  const int64_t per_rank = def.takes_any_stages_per_rank ? l.interleave : def.stages_per_rank;
  const int64_t n_stages = l.pp * per_rank;
  if (3 * m > kMostEntries / n_stages / n_slices)
    return unsupported(cat(m, " micro-batches of ", n_stages, " stages and ", n_slices,
                           " slices are more than ", kMostEntries, " entries"));
  PipelineRun run;
  run.schedule = TEGULA_TRY(make_schedule(def, {static_cast<int>(l.pp), static_cast<int>(n_stages),
                                                static_cast<int>(m), static_cast<int>(n_slices)}));
  const LayerPrice& p = pricer.layer(l);
  std::vector<StagePrice> stages;
  for (int64_t stage = 0; stage < n_stages; ++stage) {
    const bool is_last_rank = stage % l.pp == l.pp - 1;
    const int64_t layers = is_last_rank ? price.last_layers : price.stage_layers;
    StagePrice s =
        stage_price(p, real(layers) / real(per_rank), stage == n_stages - 1, price.memory);
    slice(p, real(layers) / real(per_rank), n_slices, s);
    stages.push_back(s);
  }
  run.chain = chain_of(run.schedule, stages);
  const Link link = pricer.stage_link(l);
  // Several stages of a rank send while another's part runs; 1F1B waits for its sends.
  const Links links{link.seconds, link.bytes_per_s, per_rank > 1};
  run.simulated = TEGULA_TRY(
      simulate(run.chain.program, run.schedule, {.seconds = run.chain.seconds, .links = links}));
  return run;
}

Result<PipelineRun> run_pipeline(StepPricer& pricer, const StepPrice& price) {
  return run_pipeline(pricer, price, *TEGULA_TRY(find_schedule(turns_name(price.layout.turns))));
}

}  // namespace tegula::planner
