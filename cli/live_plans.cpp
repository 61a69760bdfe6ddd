#include "cli/plan_model.h"
#include "tegula/planner/model_config.h"
#include "tegula/train/ranks.h"

namespace tegula::cli {

namespace {

Result<std::shared_ptr<const Plan>> micro_plan(TrainConfig c, int64_t n_layers) {
  c.model.n_layers = n_layers;
  TEGULA_TRY(c.model.resolve());
  const StepFunctions f = TEGULA_TRY(build_step_functions(c));
  return plan_of_first_rank(c, f, f.micro_step, Target::one_thread());
}

Result<planner::LayerLive> live_of(TrainConfig c) {
  constexpr int kFew = 3, kMost = 6;
  c.accumulate = 2;  // gradients' sums are state then, as they are in a pipeline
  auto few = TEGULA_TRY(micro_plan(c, kFew));
  for (int n = kFew;; ++n) {
    auto more = TEGULA_TRY(micro_plan(c, n + 1));
    auto live = planner::layer_live(*few, *more, n);
    if (live.ok() || n == kMost) return live;
    few = std::move(more);
  }
}

}  // namespace

Result<TrainConfig> config_of_rank(const planner::ModelSpec& model, const planner::Job& job,
                                   const planner::Layout& l) {
  if (model.family == "decoder")
    return unsupported("a decoder of choices cannot be built from its sizes alone");
  TrainConfig c;
  c.model = TEGULA_TRY(planner::model_config(model));
  c.model.max_seqlen = job.seqlen;
  c.batch = l.microbatch;
  c.accumulate = n_microbatches(job, l) > 1 ? 2 : 1;
  c.dtype = job.dtype == Number::kF32 ? "f32" : "bf16";
  for (const auto& [name, n] : {std::pair{"tp", l.tp}, std::pair{"cp", l.cp}})
    if (n > 1) c.mesh.axes.push_back({name, n});
  return c;
}

std::optional<planner::LayerLive> LayerPlans::of(const planner::ModelSpec& model,
                                                 const planner::Job& job,
                                                 const planner::Layout& layout) {
  if (n_shapes_ == kMostShapes) return {};
  ++n_shapes_;
  planner::Layout shorter = layout;
  planner::Job fewer = job;
  if (layout.cp > kMostCp) shorter.cp = kMostCp, fewer.seqlen = job.seqlen / layout.cp * kMostCp;
  const auto config = config_of_rank(model, fewer, shorter);
  if (!config.ok()) return {};
  auto live = live_of(*config);
  if (!live.ok()) return {};
  return std::move(*live);
}

}  // namespace tegula::cli
