#include "tegula/train/pipeline.h"

#include "tegula/base/algorithm.h"
#include "tegula/base/saturating.h"
#include "tegula/plan/rank_program.h"
#include "tegula/runtime/rank_group.h"
#include "tegula/train/ranks.h"
#include "tegula/train/stage_cuts.h"

namespace tegula {

namespace {
int n_pipeline(const TrainConfig& config) {
  const int a = config.mesh.find(kPipelineAxis);
  return a < 0 ? 1 : static_cast<int>(config.mesh.axes[static_cast<size_t>(a)].size);
}

// Layers in their order, one for each stage.
Status check_stages_at(const TrainConfig& config, const Schedule& schedule) {
  if (config.stages_at.empty()) return {};
  const auto n = static_cast<size_t>(schedule.shape.n_stages);
  const std::string all = stages_at_text(config);
  if (config.stages_at.size() != n || config.stages_at[0] != 0)
    return invalid_argument(cat("--stages-at ", all, " has ", config.stages_at.size(),
                                " stages; --schedule ", config.schedule,
                                " over pp=", schedule.shape.n_ranks, " has ", n,
                                ": give the layer that each begins with, the first 0"));
  for (size_t s = 1; s < n; ++s)
    if (const int64_t at = config.stages_at[s], before = config.stages_at[s - 1];
        at <= before || at >= config.model.n_layers)
      return invalid_argument(cat("--stages-at ", all, ": a stage at layer ", at, " behind one at ",
                                  before, ", of ", config.model.n_layers,
                                  " layers: give layers in their order, from 0"));
  return {};
}

}  // namespace

bool has_pipeline(const TrainConfig& config) { return n_pipeline(config) > 1; }

TrainConfig of_a_stage(const TrainConfig& config) {
  TrainConfig c = config;
  std::erase_if(c.mesh.axes, [](const MeshAxis& a) { return a.name == kPipelineAxis; });
  return c;
}

Result<Schedule> schedule_of(const TrainConfig& config) {
  const ScheduleDef* def = TEGULA_TRY(find_schedule(config.schedule));
  const int n = n_pipeline(config);
  if (config.zero >= 2)
    return unsupported(cat("--zero ", config.zero, " with --mesh pp=", n, ": ",
                           config.zero == 2 ? "sums of gradients" : "weights",
                           " would be exchanged over dp for each micro-batch, while the pipeline "
                           "waits: take --zero 1, which splits optimizer state"));
  if (config.blockwise != "off")
    return unsupported(
        cat("--mesh pp=", n, " does not count what --blockwise computes again: leave it out"));
  if (config.memory_bytes > 0 || config.checkpoint == "sqrt")
    return unsupported(cat("--mesh pp=", n, " keeps what flows between a stage's parts: leave out ",
                           config.memory_bytes > 0 ? "--memory" : "--checkpoint sqrt",
                           ", or take more micro-batches"));
  if (!def->trains)
    return invalid_argument(
        cat("--schedule ", config.schedule, " only runs forward, and trains nothing: take 1f1b"));
  // Those of one rank, where dp's share them out.
  const auto n_micro_batches = static_cast<int>(micro_groups(config).n);
  ScheduleShape shape{n, n * def->stages_per_rank, n_micro_batches, 1};
  if (config.interleave > 0) shape.n_stages = n * static_cast<int>(config.interleave);
  if (shape.n_stages > config.model.n_layers)
    return invalid_argument(
        cat("--mesh pp=", n, ": ", config.model.n_layers, " layers are too few for ",
            shape.n_stages, " stages of a layer at least: take pp=",
            std::max<int64_t>(1, config.model.n_layers / (shape.n_stages / n)),
            shape.n_stages > n ? ", a schedule or --interleave with fewer stages a rank," : "",
            " or more layers"));
  Schedule schedule = TEGULA_TRY(make_schedule(*def, shape));
  TEGULA_TRY(share_halves(schedule));
  TEGULA_TRY(check_stages_at(config, schedule));
  return schedule;
}

Schedule forward_of(const Schedule& schedule) {
  Schedule forward = schedule;
  forward.trains = forward.weight_gradients_apart = false;
  forward.shape.n_micro_batches = 1;
  for (auto& list : forward.ranks) {
    std::erase_if(
        list, [](const Instr& i) { return i.kind != PartKind::kForward || i.micro_batch != 0; });
    for (Instr& i : list) i.with_next = false;
    std::sort(list.begin(), list.end(),
              [](const Instr& a, const Instr& b) { return a.stage < b.stage; });
  }
  return forward;
}

Result<std::vector<std::string>> stages_of(const TrainConfig& config,
                                           const StepFunctions& functions, const Target& target) {
  const Schedule schedule = TEGULA_TRY(schedule_of(config));
  const auto n = static_cast<size_t>(schedule.shape.n_stages);
  if (config.stages_at.empty())
    return balanced_stages(*functions.module, functions.eval_loss, of_a_stage(config), target,
                           schedule.shape.n_stages);
  std::vector<std::string> cuts;
  for (size_t s = 1; s < n; ++s) cuts.push_back(cat("layers.", config.stages_at[s]));
  return cuts;
}

namespace {

Result<StagedFunction> staged(const TrainConfig& config, const StepFunctions& functions,
                              FuncId function, const Target& target) {
  return StagedFunction{function,
                        TEGULA_TRY(shard_options(of_a_stage(config), functions, function, target))};
}

}  // namespace

Result<CompiledStages> compile_pipeline(const TrainConfig& config, const StepFunctions& functions,
                                        const Target& target,
                                        const std::vector<std::string>& cuts) {
  StagesOptions o;
  o.schedule = TEGULA_TRY(schedule_of(config));
  o.mesh = of_a_stage(config).mesh, o.groups = micro_groups(config);
  // In mode fast each half is a chain.
  if (has_halves(o.schedule) && o.groups.groups == 1) o.groups.groups = 2;
  o.split.cuts = cuts, o.split.n_micro_batches = o.schedule.shape.n_micro_batches;
  o.split.weight_gradients_apart = o.schedule.weight_gradients_apart;
  if (config.accumulate == 1)
    o.functions.push_back(TEGULA_TRY(staged(config, functions, functions.train_step, target)));
  else
    for (const FuncId f : {functions.micro_step, functions.update})
      o.functions.push_back(TEGULA_TRY(staged(config, functions, f, target)));
  auto out = TEGULA_TRY(compile_stages(functions.module, o, compile_options(config, target)));
  if (o.mesh.n_ranks() > 1)
    for (std::string& line : TEGULA_TRY(notes_on_ranks(of_a_stage(config))))
      out.notes.push_back(std::move(line));
  if (std::string note = note_on_blocks(config, out.reports); !note.empty())
    out.notes.push_back(std::move(note));
  return out;
}

Result<CompiledStages> compile_pipeline_eval(const TrainConfig& config,
                                             const StepFunctions& functions, const Target& target,
                                             const std::vector<std::string>& cuts) {
  StagesOptions o;
  o.schedule = forward_of(TEGULA_TRY(schedule_of(config)));
  o.mesh = of_a_stage(config).mesh;
  o.split.cuts = cuts;
  o.functions.push_back(TEGULA_TRY(staged(config, functions, functions.eval_loss, target)));
  return compile_stages(functions.module, o, compile_options(config, target));
}

StepCost cost_of_stages(const PlannedProgram& program) {
  StepCost c;
  Count flops = 0, bytes = 0;
  for (const ProgramStep& s : program.steps) {
    if (s.kind > ProgramStep::Kind::kJoin) continue;
    const Plan& plan = program.plan_of(s);
    flops = flops + Count(plan.flops()), bytes = bytes + Count(plan.bytes());
    c.lower_bound_bytes = std::max(c.lower_bound_bytes, plan.lower_bound_bytes);
  }
  c.flops = flops.n, c.bytes = bytes.n;
  c.state_bytes = program.state_bytes();
  c.arena_bytes = program.arena_bytes() + program.flow_bytes;
  c.lower_bound_bytes += program.flow_lower_bound_bytes;
  return c;
}

}  // namespace tegula
