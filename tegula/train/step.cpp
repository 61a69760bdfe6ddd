#include "tegula/train/step.h"

#include <cstdlib>
#include <optional>
#include <set>

#include "tegula/base/saturating.h"
#include "tegula/ops/autodiff.h"
#include "tegula/ops/math.h"
#include "tegula/ops/table.h"
#include "tegula/passes/join_sums.h"
#include "tegula/passes/row_region.h"
#include "tegula/passes/split.h"
#include "tegula/runtime/known_links.h"
#include "tegula/train/deal.h"
#include "tegula/train/loss_scale.h"

namespace tegula {

namespace {

struct Batch {
  Var tokens, targets;
};

Batch batch_params(Builder& b, const TrainConfig& c) {
  const Type t{DType::kI32, {c.batch, c.row_length()}};
  return {b.param("tokens", t), b.param("targets", t)};
}

// In mode exact the gradient of a weight with several uses (a table that is embedding and head) is
// summed for each apart, over all shards, micro-batches and ranks, and joined once, in the update.
std::vector<Var> by_use(Builder& b, Var gradient) {
  const Node* n = b.function().producer(gradient.id());
  if (!n || n->op != &add_op || n->phase != Phase::kBackward) return {gradient};
  std::vector<Var> parts;
  for (const ValueId v : std::vector(n->inputs.begin(), n->inputs.end()))
    for (const Var& part : by_use(b, Var(&b, v))) parts.push_back(part);
  return parts;
}

// Names what micro-batches sum of a weight's gradient, and joins it.
Var joined_uses(Builder& b, const TrainConfig& config, const WeightSpec& weight, Var gradient) {
  const std::vector<Var> parts =
      config.mode == "exact" ? by_use(b, gradient) : std::vector<Var>{gradient};
  for (size_t i = 0; i < parts.size() && config.accumulate > 1; ++i)
    b.result(cat(kSumOfGradients, i == 0 ? "" : cat("use", i, "."), weight.name), parts[i]);
  if (parts.size() == 1) return gradient;
  const Scope scope(b, weight.scope);
  b.set_phase(Phase::kUpdate);
  Var sum = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) sum = sum + parts[i];
  b.set_phase(Phase::kForward);
  return sum;
}

std::vector<Var> weight_vars(Context& c) {
  std::vector<Var> vars;
  for (const WeightSpec& w : c.weights()) vars.push_back(c.weight(w.name, w.type.shape));
  return vars;
}

}  // namespace

Result<StepFunctions> build_step_functions(const TrainConfig& config) {
  if (config.dtype != "f32" && config.dtype != "bf16" && config.dtype != "f16")
    return unsupported(cat("dtype ", config.dtype, ": training computes in f32, bf16 or f16"));
  const ModelDef* model = TEGULA_TRY(find_model(config.model.type));
  StepFunctions f;
  f.module = std::make_shared<Module>();
  Module& module = *f.module;
  const bool dropout = config.model.dropout > 0;

  auto forward = [&](Builder& b, Context& c, bool training) {
    const Batch in = batch_params(b, config);
    c.is_training = training;
    c.order = dealt_order(config);
    if (training && dropout) c.seed = b.param("seed", {DType::kI64, {}});
    return model_loss(c, *model, in.tokens, in.targets);
  };
  {
    Builder b(module, "train_step");
    Context c(b, config.model);
    const Var loss = forward(b, c, true);
    const auto weights = weight_vars(c);
    std::optional<LossScale> scale;
    if (config.dtype == "f16") scale = LossScale::params(b);
    auto grads = grad(scale ? loss * scale->scale : loss, weights);
    f.weights = c.weights();
    b.result("loss", loss);
    for (size_t i = 0; i < grads.size(); ++i)
      grads[i] = joined_uses(b, config, f.weights[i], grads[i]);
    const StepScalars scalars = StepScalars::params(b);
    if (scale) grads = scale->unscaled(b, f.weights, std::move(grads));
    const Var norm = apply_optimizer(b, config.optimizer, scalars, f.weights, weights, grads,
                                     config.mode == "exact");
    b.result("grad_norm", norm);
    if (scale) scale->follow(b, norm, config.loss_scale_every);
    f.train_step = TEGULA_TRY(b.finish_into_module());
  }
  if (config.accumulate > 1) {
    SplitOptions o;
    o.n_micro_batches = static_cast<int>(config.accumulate);
    const Program p = TEGULA_TRY(split(module, f.train_step, o));
    const auto part = [&](PartKind k) { return p.parts[p.find(k, 0)].function; };
    f.micro_step = part(PartKind::kWhole), f.update = part(PartKind::kUpdate);
    if (micro_groups(config).groups > 1)
      f.join = TEGULA_TRY(join_sums(module, f.micro_step, "join"));
  }
  Builder b(module, "eval_loss");
  Context c(b, config.model);
  b.result("loss", forward(b, c, false));
  f.eval_loss = TEGULA_TRY(b.finish_into_module());
  return f;
}

int64_t batch_shares(const TrainConfig& config) {
  const int dp = config.mesh.find("dp");
  if (dp < 0 || config.mode != "exact" || config.accumulate == 1 || config.zero >= 2) return 1;
  const int64_t n = config.mesh.axes[dp].size;
  return MicroGroups::of(config.accumulate).groups % n == 0 ? n : 1;
}

MicroGroups micro_groups(const TrainConfig& config) {
  if (config.mode != "exact") return MicroGroups::chain(config.accumulate);
  return MicroGroups::of(config.accumulate).share(batch_shares(config));
}

namespace {
// In the order of parts_of_step.
std::vector<int64_t> times_of_parts(const TrainConfig& config) {
  if (config.accumulate == 1) return {1};
  const MicroGroups g = micro_groups(config);
  if (g.groups == 1) return {g.n, 1};
  return {g.n, 1, g.groups - 1};
}
}  // namespace

std::vector<StepPart> parts_of_step(const TrainConfig& config, const StepFunctions& f) {
  const bool one = config.accumulate == 1;
  const FuncId functions[] = {one ? f.train_step : f.micro_step, f.update, f.join};
  std::vector<StepPart> parts;
  for (const int64_t times : times_of_parts(config))
    parts.push_back({functions[parts.size()], times});
  return parts;
}

Result<StepCost> step_cost(const TrainConfig& config, std::span<const Plan* const> plans) {
  StepCost c;
  const int64_t n_slots = micro_groups(config).n_slots();
  Count flops = 0, bytes = 0;
  std::set<std::string_view> seen;  // the update's moments are not the micro step's
  const auto add = [&](const Plan& plan, int64_t times) {
    flops = flops + Count(times) * plan.flops(), bytes = bytes + Count(times) * plan.bytes();
    c.arena_bytes = std::max(c.arena_bytes, plan.arena_bytes);
    c.lower_bound_bytes = std::max(c.lower_bound_bytes, plan.lower_bound_bytes);
    for (const Plan::Port& p : plan.params)
      if (p.role != Role::kInput && seen.insert(p.name).second)
        c.state_bytes += p.tensor.type.bytes() * (p.name.starts_with(kNextSum) ? n_slots - 1 : 1);
  };
  const std::vector<int64_t> times = times_of_parts(config);
  for (size_t i = 0; i < plans.size(); ++i) add(*plans[i], times[i]);
  c.flops = flops.n, c.bytes = bytes.n;
  if (c.flops < kUncountable && c.bytes < kUncountable) return c;
  return unsupported(cat("--accumulate ", config.accumulate, ": a step of ", config.accumulate,
                         " x ", plans[0]->flops(), " FLOPs and ", config.accumulate, " x ",
                         plans[0]->bytes(), " bytes, and 64 bits count to ", kUncountable,
                         ": accumulate fewer micro-batches"));
}

Result<StepCost> cost_of_ranks(std::span<const StepCost> ranks) {
  StepCost all;
  Count flops = 0, bytes = 0;
  for (const StepCost& c : ranks) {
    flops = flops + Count(c.flops), bytes = bytes + Count(c.bytes);
    if (c.peak_bytes() <= all.peak_bytes()) continue;
    all.state_bytes = c.state_bytes, all.arena_bytes = c.arena_bytes;
    all.lower_bound_bytes = c.lower_bound_bytes;
  }
  all.flops = flops.n, all.bytes = bytes.n;
  if (all.flops < kUncountable && all.bytes < kUncountable) return all;
  return unsupported(cat("the FLOPs or bytes of a step of all ", ranks.size(),
                         " ranks are more than the ", kUncountable, " that 64 bits count"));
}

CompileOptions compile_options(const TrainConfig& config, const Target& target) {
  CompileOptions o;
  o.passes.passes = config.passes;
  o.plan.target = target;
  PassOptions& p = o.passes.pass;
  if (config.dtype == "bf16") p.compute_dtype = DType::kBF16;
  if (config.dtype == "f16") p.compute_dtype = DType::kF16;
  p.mode = config.mode == "fast" ? Mode::kFast : Mode::kExact;
  p.is_step = true;
  p.memory_bytes = config.memory_bytes;
  if (config.blockwise == "auto") p.block_rows = PassOptions::kAutoBlock;
  if (config.blockwise != "auto" && config.blockwise != "off")
    p.block_rows = std::strtoll(config.blockwise.c_str(), nullptr, 10);
  if (config.tune != "off")
    o.tune = {config.tune == "full" ? TuneMode::kFull : TuneMode::kQuick, config.tune_cache};
  if (config.tune != "off" && config.mesh.n_ranks() > 1) {
    o.plan.comm = known_comm_table(o.tune);
    o.plan.adds_on_the_way = p.mode == Mode::kFast;
    Target& t = o.plan.target;
    if (o.plan.comm && t.link_s == 0 && t.link_bytes_per_s == 0)
      t.link_s = o.plan.comm->link_s, t.link_bytes_per_s = o.plan.comm->link_bytes_per_s;
  }
  o.superopt_seconds = config.superopt, o.rules = config.rule_set;
  if (config.tune == "off") o.tune.directory = config.tune_cache;
  if (config.checkpoint == "sqrt") p.remat = Remat::kSqrt;
  if (config.checkpoint == "auto" && config.memory_bytes > 0) p.remat = Remat::kBudget;
  return o;
}

std::string note_on_blocks(const TrainConfig& config, std::span<const PassReport> reports) {
  if (config.blockwise == "off") return "";
  for (const PassReport& r : reports)
    if (r.pass == "blockwise" && r.changed) return "";
  const std::string what = cat("--blockwise ", config.blockwise, " changes nothing: ");
  if (config.blockwise == "auto") return what + "no feed-forward layer is so large that it gains";
  int64_t tokens = config.batch * config.row_length();
  for (const MeshAxis& a : config.mesh.axes)
    if (a.name != "tp") tokens /= a.size;
  if (std::strtoll(config.blockwise.c_str(), nullptr, 10) >= tokens)
    return cat(what, "a batch has ", tokens, " tokens, which one block holds");
  return cat(what, config.model.type, " has no feed-forward layer that can be cut into blocks of ",
             kLeastBlockRows, " to ", config.blockwise, " tokens");
}

}  // namespace tegula
