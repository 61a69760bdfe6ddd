#include <cmath>
#include <cstdio>
#include <map>

#include "cli/bench.h"
#include "cli/plan.h"
#include "tegula/base/algorithm.h"
#include "tegula/base/text.h"
#include "tegula/io/json.h"
#include "tegula/plan/flops_table.h"
#include "tegula/plan/places.h"
#include "tegula/planner/print.h"

namespace tegula::cli {

namespace {

FlopsTable flops_table(const Planned& p) {
  FlopsTable table;
  const auto plans = p.plans();
  for (size_t i = 0; i < plans.size(); ++i) table.add(*plans[i], p.parts[i].times);
  table.sort();
  return table;
}

Json flops_json(const FlopsRow& r) {
  return Json::object(
      {{"name", r.name}, {"forward", r.forward}, {"backward", r.backward}, {"update", r.update}});
}

// A step's price on the target: its plans', as often as they run.
double seconds_of(const Planned& p) {
  double sum = 0;
  const auto plans = p.plans();
  for (size_t i = 0; i < plans.size(); ++i)
    sum += static_cast<double>(p.parts[i].times) * plans[i]->seconds();
  return sum;
}

// A run over so many tokens, in whole steps. Past what 64 bits count: in double.
struct RunCost {
  double steps = 0, flops = 0, bytes = 0, seconds = 0;
};

double tokens_of_step(const TrainConfig& c) {
  return static_cast<double>(c.batch) * static_cast<double>(c.accumulate) *
         static_cast<double>(c.row_length());
}

RunCost run_cost(const Planned& p, const TrainConfig& c, double tokens) {
  const double n = std::ceil(tokens / tokens_of_step(c));
  return {n, n * static_cast<double>(p.cost.flops), n * static_cast<double>(p.cost.bytes),
          n * seconds_of(p)};
}

// "4.1 days"
std::string duration(double seconds) {
  static constexpr struct {
    double unit;
    const char* name;
  } kUnits[] = {{365.25 * 86400, "years"}, {86400, "days"}, {3600, "hours"}, {1, "s"}};
  for (const auto& u : kUnits)
    if (seconds >= 2 * u.unit || u.unit == 1) return printed("%.4g %s", seconds / u.unit, u.name);
  return "";
}

Json recomputed_json(const Recomputed& r) {
  return Json::object({{"scope", r.scope},
                       {"op", std::string(r.op)},
                       {"bytes", r.bytes},
                       {"saved_s", r.saved_s},
                       {"paid_s", r.paid_s}});
}

// "405.85 B (405,853,388,800)"
std::string counted(int64_t n) {
  const std::string digits = planner::grouped(n);
  static constexpr struct {
    double unit;
    const char* name;
  } kUnits[] = {{1e12, "T"}, {1e9, "B"}, {1e6, "M"}};
  for (const auto& u : kUnits)
    if (static_cast<double>(n) >= u.unit)
      return printed("%.2f %s (%s)", static_cast<double>(n) / u.unit, u.name, digits.c_str());
  return digits;
}

// "-3.1 %"
std::string signed_error(double predicted, double measured) {
  return printed("%+.1f %%", 100 * (predicted / measured - 1));
}

void print_measured(const Planned& p) {
  const MeasuredStep& m = *p.measured;
  std::printf("measured    %.4g ms a step, the median of %lld; priced %s", 1e3 * m.step_s,
              static_cast<long long>(m.runs), signed_error(seconds_of(p), m.step_s).c_str());
  if (p.predicted)
    std::printf(
        ", predicted %s, which lies %s the interval",
        signed_error(p.predicted->seconds, m.step_s).c_str(),
        p.predicted->low <= m.step_s && m.step_s <= p.predicted->high ? "inside" : "outside");
  std::printf(
      "\n            FLOPs: planned %lld, counted %lld; peak bytes: planned %lld, measured %lld\n",
      static_cast<long long>(p.cost.flops), static_cast<long long>(m.flops),
      static_cast<long long>(p.cost.peak_bytes()), static_cast<long long>(m.peak_bytes));
}

void print_flops(const std::vector<FlopsRow>& rows) {
  for (const FlopsRow& r : rows)
    std::printf("            %-24s %10.4g forward %10.4g backward %10.4g update\n", r.name.c_str(),
                static_cast<double>(r.forward), static_cast<double>(r.backward),
                static_cast<double>(r.update));
}

// Prints what is computed twice, all layers' together.
void print_recomputed(const std::vector<Recomputed>& choices) {
  struct Sum {
    int64_t n = 0, bytes = 0;
    double saved_s = 0, paid_s = 0;
  };
  std::map<std::pair<std::string, std::string_view>, Sum> sums;
  for (const Recomputed& r : choices) {
    Sum& s = sums[{place_in_layers(r.scope), r.op}];
    ++s.n, s.bytes += r.bytes, s.saved_s += r.saved_s, s.paid_s += r.paid_s;
  }
  for (const auto& [what, s] : sums)
    std::printf("recomputed  %s of %s, %lld values of %.1f MiB: %.4g ms instead of %.4g\n",
                std::string(what.second).c_str(), what.first.c_str(), static_cast<long long>(s.n),
                static_cast<double>(s.bytes) / (1 << 20), 1e3 * s.paid_s, 1e3 * s.saved_s);
}

}  // namespace

std::vector<const Plan*> Planned::plans() const {
  std::vector<const Plan*> all = {compiled.plan.get()};
  for (const Compiled& c : the_rest) all.push_back(c.plan.get());
  return all;
}

void print_json(const Planned& p, const TrainConfig& c, const PrintOptions& o) {
  const StepCost& cost = p.cost;
  const FlopsTable flops = flops_table(p);
  const Plan& plan = *p.compiled.plan;
  Json::Array ranks = {Json::object(
      {{"flops", cost.flops}, {"sent_bytes", int64_t{0}}, {"peak_bytes", cost.peak_bytes()}})};
  Json j = Json::object({{"params", parameter_count(p.functions.weights)},
                         {"target", plan.target.name},
                         {"host_steps", plan.host_steps()},
                         {"seconds", seconds_of(p)},
                         {"vocab_size", c.model.vocab_size},
                         {"nodes_built", static_cast<int64_t>(p.nodes)},
                         {"steps", static_cast<int64_t>(p.compiled.plan->steps.size())},
                         {"flops_per_step", cost.flops},
                         {"flops_forward", flops.total.forward},
                         {"flops_backward", flops.total.backward},
                         {"flops_update", flops.total.update},
                         {"flops_by_layer", json_list(flops.layers, flops_json)},
                         {"flops_by_op", json_list(flops.ops, flops_json)},
                         {"bytes_per_step", cost.bytes},
                         {"state_bytes", cost.state_bytes},
                         {"arena_bytes", cost.arena_bytes},
                         {"arena_lower_bound_bytes", cost.lower_bound_bytes},
                         {"arena_without_blockwise_bytes",
                          c.blockwise == "off" ? cost.arena_bytes : p.whole_arena_bytes},
                         {"recomputed", json_list(p.compiled.recomputed, recomputed_json)},
                         {"rules", *json_of(p.compiled.rewritten).find("rules")},
                         {"ranks", std::move(ranks)},
                         {"build_ms", p.build_ms},
                         {"passes_ms", p.compiled.passes_ms},
                         {"plan_ms", p.compiled.plan_ms},
                         {"total_ms", p.total_ms}});
  if (p.predicted) {
    j.set("predicted_s", p.predicted->seconds);
    j.set("predicted_low_s", p.predicted->low), j.set("predicted_high_s", p.predicted->high);
    j.set("predicted_share_unknown", p.predicted->share_unknown);
  }
  if (p.measured)
    j.set("measured", Json::object({{"step_s", p.measured->step_s},
                                    {"runs", p.measured->runs},
                                    {"flops", p.measured->flops},
                                    {"peak_bytes", p.measured->peak_bytes}}));
  if (p.of_device) j.set("device_bytes", p.of_device->total_bytes());
  if (o.tokens_total > 0) {
    const RunCost run = run_cost(p, c, o.tokens_total);
    j.set("run", Json::object({{"tokens", o.tokens_total},
                               {"steps", run.steps},
                               {"flops", run.flops},
                               {"bytes", run.bytes},
                               {"seconds", run.seconds}}));
  }
  print_line(j);
}

void print_text(const Planned& p, const TrainConfig& c, const PrintOptions& o) {
  const StepCost& cost = p.cost;
  const Plan& plan = *p.compiled.plan;
  const FlopsTable flops = flops_table(p);
  const double tokens = tokens_of_step(c);
  const double mib = 1 << 20;
  std::printf("model       %s, %s parameters, a vocabulary of %lld\n", c.model.type.c_str(),
              counted(parameter_count(p.functions.weights)).c_str(),
              static_cast<long long>(c.model.vocab_size));
  std::printf("target      %s\n", to_string(plan.target).c_str());
  if (const int n = plan.host_steps(); n > 0)
    std::printf("            %d of %zu steps have no kernel there yet\n", n, plan.steps.size());
  std::printf("a step      %.4g FLOPs (%.4g a token), %.4g bytes moved at least\n",
              static_cast<double>(cost.flops), static_cast<double>(cost.flops) / tokens,
              static_cast<double>(cost.bytes));
  if (plan.target.bytes_per_s > 0)
    std::printf("priced      %.4g ms a step by what kernels sustain, %.4g tokens/s\n",
                1e3 * seconds_of(p), tokens / seconds_of(p));
  if (p.predicted)
    std::printf("predicted   %.4g ms a step (%.4g to %.4g) by calls timed on this machine%s\n",
                1e3 * p.predicted->seconds, 1e3 * p.predicted->low, 1e3 * p.predicted->high,
                p.predicted->share_unknown > 0.005
                    ? cat(", ", std::lround(100 * p.predicted->share_unknown),
                          " % of it by calls of other kinds")
                          .c_str()
                    : "");
  if (p.measured) print_measured(p);
  if (o.tokens_total > 0) {
    const RunCost run = run_cost(p, c, o.tokens_total);
    std::printf("a run       %.4g tokens in %.10g steps: %.4g FLOPs, %.4g bytes moved at least%s\n",
                o.tokens_total, run.steps, run.flops, run.bytes,
                plan.target.bytes_per_s > 0
                    ? cat(", ", duration(run.seconds), " by what kernels sustain").c_str()
                    : "");
  }
  std::printf("FLOPs       %.4g forward, %.4g backward, %.4g update\n",
              static_cast<double>(flops.total.forward), static_cast<double>(flops.total.backward),
              static_cast<double>(flops.total.update));
  if (o.verbose) print_flops(flops.layers), print_flops(flops.ops);
  std::printf(
      "memory      %.1f MiB weights and state + %.1f MiB arena (lower bound %.1f, gap %.2f%%)\n",
      static_cast<double>(cost.state_bytes) / mib, static_cast<double>(cost.arena_bytes) / mib,
      static_cast<double>(cost.lower_bound_bytes) / mib,
      100.0 * static_cast<double>(cost.arena_bytes - cost.lower_bound_bytes) /
          static_cast<double>(std::max<int64_t>(cost.lower_bound_bytes, 1)));
  if (p.of_device)
    std::printf(
        "device      %.1f MiB of %.1f in all: arena, weights and state, inputs %.1f, "
        "plug-in %.1f\n",
        static_cast<double>(p.of_device->total_bytes()) / mib,
        static_cast<double>(c.device_memory_bytes) / mib,
        static_cast<double>(p.of_device->input_bytes) / mib,
        static_cast<double>(p.of_device->plugin_bytes) / mib);
  if (c.blockwise != "off")
    std::printf("blockwise   %.1f MiB arena instead of %.1f\n",
                static_cast<double>(cost.arena_bytes) / mib,
                static_cast<double>(p.whole_arena_bytes) / mib);
  print_recomputed(p.compiled.recomputed);
  if (c.superopt > 0) print_lines(p.compiled.rewritten.lines());
  std::printf(
      "compiled    %zu nodes -> %zu steps; build and autodiff %.2f ms, passes %.2f, plan %.2f\n",
      p.nodes, plan.steps.size(), p.build_ms, p.compiled.passes_ms, p.compiled.plan_ms);
  if (o.timings) std::fputs(to_text(p.compiled.reports).c_str(), stdout);
  if (!o.verbose) return;
  std::fputs(plan.to_string().c_str(), stdout);
  for (const Compiled& c : p.the_rest) std::fputs(c.plan->to_string().c_str(), stdout);
}

}  // namespace tegula::cli
