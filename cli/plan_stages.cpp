#include "cli/plan_stages.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "tegula/io/json.h"
#include "tegula/runtime/compile.h"
#include "tegula/train/step.h"

namespace tegula::cli {

namespace {

struct Row {
  std::string from;  // the scope that it begins with; "": the first
  int64_t forward_flops = 0, backward_flops = 0, update_flops = 0;  // a step
  int64_t state_bytes = 0, arena_bytes = 0, flow_bytes = 0;
  double seconds = 0;
};

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

std::vector<Row> rows_of(const PlannedProgram& p, const std::vector<std::string>& cuts,
                         const ScheduleCount& count) {
  std::vector<Row> rows(static_cast<size_t>(p.program.n_stages));
  std::vector<std::set<std::string>> seen(rows.size());
  for (size_t i = 0; i < p.plans.size(); ++i) {
    const Part& part = p.program.parts[i];
    const Plan& plan = *p.plans[i];
    const auto at = static_cast<size_t>(part.stage);
    Row& r = rows[at];
    const int64_t n = is_per_micro_batch(part.kind) ? p.program.n_micro_batches : 1;
    (part.kind == PartKind::kForward ? r.forward_flops
     : is_per_micro_batch(part.kind) ? r.backward_flops
                                     : r.update_flops) += n * plan.flops();
    r.arena_bytes = std::max(r.arena_bytes, plan.arena_bytes);
    r.seconds += static_cast<double>(n) * plan.seconds();
    for (const Plan::Port& port : plan.params)
      if (port.role != Role::kInput && seen[at].insert(port.name).second)
        r.state_bytes += port.tensor.type.bytes();
  }
  for (size_t s = 0; s < rows.size(); ++s) {
    if (s > 0) rows[s].from = cuts[s - 1];
    rows[s].flow_bytes = count.peak_bytes[s];
  }
  return rows;
}

void print_json(const PlannedProgram& p, const std::vector<Row>& rows, const ScheduleCount& count,
                const Stages& stages, const std::vector<double>& seconds) {
  Json::Array list, parts;
  for (const Row& r : rows)
    list.push_back(Json::object({{"from", r.from},
                                 {"flops_forward", r.forward_flops},
                                 {"flops_backward", r.backward_flops},
                                 {"flops_update", r.update_flops},
                                 {"state_bytes", r.state_bytes},
                                 {"arena_bytes", r.arena_bytes},
                                 {"flow_bytes", r.flow_bytes},
                                 {"seconds", r.seconds}}));
  for (size_t i = 0; i < p.plans.size(); ++i)
    parts.push_back(Json::object({{"part", std::string(name_of(p.program.parts[i].kind))},
                                  {"stage", p.program.parts[i].stage},
                                  {"flops", p.plans[i]->flops()},
                                  {"seconds", seconds[i]}}));
  Json j = Json::object({{"schedule", stages.schedule},
                         {"micro_batches", p.program.n_micro_batches},
                         {"seconds", count.seconds},
                         {"bubble", count.bubble},
                         {"flops_per_step", p.flops()},
                         {"one_rank_peak_bytes", p.peak_bytes()}});
  j.set("stages", Json(std::move(list)));
  j.set("parts", Json(std::move(parts)));
  std::printf("%s\n", j.dump().c_str());
}

void print_text(const PlannedProgram& p, const std::vector<Row>& rows, const ScheduleCount& count,
                const Stages& stages, bool is_priced) {
  const double mib = 1 << 20;
  std::printf("stages      %zu, %d micro-batches, schedule %s\n", rows.size(),
              p.program.n_micro_batches, stages.schedule.c_str());
  std::printf("            %-12s %10s %10s %10s %10s %10s %10s\n", "from", "forward", "backward",
              "update", "state MiB", "arena MiB", "kept MiB");
  for (const Row& r : rows)
    std::printf("            %-12s %10.4g %10.4g %10.4g %10.1f %10.1f %10.1f\n",
                r.from.empty() ? "the tokens" : r.from.c_str(),
                static_cast<double>(r.forward_flops), static_cast<double>(r.backward_flops),
                static_cast<double>(r.update_flops), static_cast<double>(r.state_bytes) / mib,
                static_cast<double>(r.arena_bytes) / mib, static_cast<double>(r.flow_bytes) / mib);
  std::printf("a step      %.4g FLOPs", static_cast<double>(p.flops()));
  if (is_priced)
    std::printf("; %.4g ms by its roofline, %.1f %% of it waiting", 1e3 * count.seconds,
                100 * count.bubble);
  std::printf("\none rank    all stages in turns: %.1f MiB at most\n",
              static_cast<double>(p.peak_bytes()) / mib);
}

}  // namespace

Status plan_stages(const TrainConfig& c, const Target& target, const Stages& stages) {
  if (stages.n > c.model.n_layers)
    return invalid_argument(cat("--stages ", stages.n, ": ", c.model.type, " has ",
                                c.model.n_layers, " layers, and a stage has one at least"));
  const ScheduleDef* schedule = TEGULA_TRY(find_schedule(stages.schedule));
  const StepFunctions f = TEGULA_TRY(build_step_functions(c));
  SplitOptions split;
  split.cuts =
      balanced_cuts(layer_flops(*f.module, (*f.module)[f.train_step], c.model.n_layers), stages.n);
  split.n_micro_batches = static_cast<int>(c.accumulate);
  split.weight_gradients_apart = schedule->weight_gradients_apart;
  const CompiledProgram compiled = TEGULA_TRY(
      compile_program(f.module, f.train_step, split, *schedule, compile_options(c, target)));
  const PlannedProgram& p = *compiled.planned;
  std::vector<double> seconds;
  for (const auto& plan : p.plans) seconds.push_back(plan->seconds());
  const ScheduleCount count = TEGULA_TRY(count_schedule(p.program, p.schedule, seconds));
  const std::vector<Row> rows = rows_of(p, split.cuts, count);
  c.json ? print_json(p, rows, count, stages, seconds)
         : print_text(p, rows, count, stages, target.bytes_per_s > 0);
  return {};
}

}  // namespace tegula::cli
