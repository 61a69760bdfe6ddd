#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>

#include "cli/calibrate.h"
#include "cli/command.h"
#include "cli/config.h"
#include "cli/machine.h"
#include "cli/paths.h"
#include "cli/plan_ranks.h"
#include "cli/plan_sharding.h"
#include "cli/plan_stages.h"
#include "cli/train_flags.h"
#include "tegula/base/thread_pool.h"
#include "tegula/io/file.h"
#include "tegula/io/json.h"
#include "tegula/io/text_data.h"
#include "tegula/io/tokenizer.h"
#include "tegula/kernels/device.h"
#include "tegula/plan/flops_table.h"
#include "tegula/plan/places.h"
#include "tegula/plan/plan_json.h"
#include "tegula/plan/verify.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/measured_target.h"
#include "tegula/train/step.h"

namespace tegula::cli {

namespace {

struct Options {
  TrainFlags flags;
  int64_t vocab_size = 50257;
  bool verbose = false, timings = false, verify = false, measure = false, calibrate = false;
  int repeat = 1;
  std::string save, load, config_file;
  std::string target, device;
  double tokens_total = 0;  // of a run; 0: not asked
  Stages stages;
  ShardingFlags sharding;
  bool has_mode = false;
  bool has_own_vocabulary = false;  // --vocab-size on the command line, where the text may be one's
};

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point t) {
  return std::chrono::duration<double, std::milli>(Clock::now() - t).count();
}

struct Planned {
  StepFunctions functions;
  Compiled compiled, update;  // update: null without accumulation
  StepCost cost;
  size_t nodes = 0;
  double build_ms = 0, total_ms = 0;
  int64_t whole_arena_bytes = 0;                // without --blockwise
  std::optional<planner::Predicted> predicted;  // a step's, with --calibrate
};

Result<Planned> plan_once(const TrainConfig& c, const Target& target) {
  Planned p;
  const auto start = Clock::now();
  p.functions = TEGULA_TRY(build_step_functions(c));
  p.build_ms = ms_since(start);
  const FuncId f = c.accumulate > 1 ? p.functions.micro_step : p.functions.train_step;
  p.nodes = (*p.functions.module)[f].nodes.size();
  p.compiled = TEGULA_TRY(compile(p.functions.module, f, compile_options(c, target)));
  if (c.accumulate > 1)
    p.update =
        TEGULA_TRY(compile(p.functions.module, p.functions.update, compile_options(c, target)));
  p.total_ms = ms_since(start);
  p.cost = TEGULA_TRY(step_cost(c, *p.compiled.plan, p.update.plan.get()));
  return p;
}

Status show(const std::string& path) {
  const Plan plan = TEGULA_TRY(plan_from_json(TEGULA_TRY(read_file(path)), path));
  std::fputs(plan.to_string().c_str(), stdout);
  return {};
}

FlopsTable flops_table(const Planned& p, int64_t accumulate) {
  FlopsTable table;
  table.add(*p.compiled.plan, accumulate);
  if (p.update.plan) table.add(*p.update.plan, 1);
  table.sort();
  return table;
}

Json json_of(const FlopsRow& r) {
  return Json::object(
      {{"name", r.name}, {"forward", r.forward}, {"backward", r.backward}, {"update", r.update}});
}

Json json_of(const std::vector<FlopsRow>& rows) {
  Json::Array list;
  for (const FlopsRow& r : rows) list.push_back(json_of(r));
  return list;
}

// A step's price on the target: its plan's, as often as it runs, and the update's.
double seconds_of(const Planned& p, const TrainConfig& c) {
  const double update = p.update.plan ? p.update.plan->seconds() : 0;
  return static_cast<double>(c.accumulate) * p.compiled.plan->seconds() + update;
}

// A run over so many tokens, in whole steps. Past what 64 bits count: in double.
struct RunCost {
  double steps = 0, flops = 0, bytes = 0, seconds = 0;
};

double tokens_of_step(const TrainConfig& c) {
  return static_cast<double>(c.batch) * static_cast<double>(c.accumulate) *
         static_cast<double>(c.model.max_seqlen);
}

RunCost run_cost(const Planned& p, const TrainConfig& c, double tokens) {
  const double n = std::ceil(tokens / tokens_of_step(c));
  return {n, n * static_cast<double>(p.cost.flops), n * static_cast<double>(p.cost.bytes),
          n * seconds_of(p, c)};
}

// "4.1 days"
std::string duration(double seconds) {
  static constexpr struct {
    double unit;
    const char* name;
  } kUnits[] = {{365.25 * 86400, "years"}, {86400, "days"}, {3600, "hours"}, {1, "s"}};
  for (const auto& u : kUnits)
    if (seconds >= 2 * u.unit || u.unit == 1) {
      char text[32];
      std::snprintf(text, sizeof text, "%.4g %s", seconds / u.unit, u.name);
      return text;
    }
  return "";
}

Json json_of(const std::vector<Recomputed>& choices) {
  Json::Array all;
  for (const Recomputed& r : choices)
    all.push_back(Json::object({{"scope", r.scope},
                                {"op", std::string(r.op)},
                                {"bytes", r.bytes},
                                {"saved_s", r.saved_s},
                                {"paid_s", r.paid_s}}));
  return Json(std::move(all));
}

void print_json(const Planned& p, const TrainConfig& c, const Options& o) {
  const StepCost& cost = p.cost;
  const FlopsTable flops = flops_table(p, c.accumulate);
  const Plan& plan = *p.compiled.plan;
  Json::Array ranks = {Json::object(
      {{"flops", cost.flops}, {"sent_bytes", int64_t{0}}, {"peak_bytes", cost.peak_bytes()}})};
  Json j = Json::object({{"params", parameter_count(p.functions.weights)},
                         {"target", plan.target.name},
                         {"host_steps", plan.host_steps()},
                         {"seconds", seconds_of(p, c)},
                         {"vocab_size", c.model.vocab_size},
                         {"nodes_built", static_cast<int64_t>(p.nodes)},
                         {"steps", static_cast<int64_t>(p.compiled.plan->steps.size())},
                         {"flops_per_step", cost.flops},
                         {"flops_forward", flops.total.forward},
                         {"flops_backward", flops.total.backward},
                         {"flops_update", flops.total.update},
                         {"flops_by_layer", json_of(flops.layers)},
                         {"flops_by_op", json_of(flops.ops)},
                         {"bytes_per_step", cost.bytes},
                         {"state_bytes", cost.state_bytes},
                         {"arena_bytes", cost.arena_bytes},
                         {"arena_lower_bound_bytes", cost.lower_bound_bytes},
                         {"arena_without_blockwise_bytes",
                          c.blockwise == "off" ? cost.arena_bytes : p.whole_arena_bytes},
                         {"recomputed", json_of(p.compiled.recomputed)},
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
  if (o.tokens_total > 0) {
    const RunCost run = run_cost(p, c, o.tokens_total);
    j.set("run", Json::object({{"tokens", o.tokens_total},
                               {"steps", run.steps},
                               {"flops", run.flops},
                               {"bytes", run.bytes},
                               {"seconds", run.seconds}}));
  }
  std::printf("%s\n", j.dump().c_str());
}

// "405.85 B (405,853,388,800)"
std::string counted(int64_t n) {
  std::string digits = std::to_string(n);
  for (size_t at = digits.size(); at > 3;) digits.insert(at -= 3, ",");
  static constexpr struct {
    double unit;
    const char* name;
  } kUnits[] = {{1e12, "T"}, {1e9, "B"}, {1e6, "M"}};
  for (const auto& u : kUnits)
    if (static_cast<double>(n) >= u.unit) {
      char text[32];
      std::snprintf(text, sizeof text, "%.2f %s", static_cast<double>(n) / u.unit, u.name);
      return cat(text, " (", digits, ")");
    }
  return digits;
}

void print_flops(const std::vector<FlopsRow>& rows) {
  for (const FlopsRow& r : rows)
    std::printf("            %-24s %10.4g forward %10.4g backward %10.4g update\n", r.name.c_str(),
                static_cast<double>(r.forward), static_cast<double>(r.backward),
                static_cast<double>(r.update));
}

// What is computed twice, all layers' together.
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

void print_text(const Planned& p, const TrainConfig& c, const Options& o) {
  const StepCost& cost = p.cost;
  const Plan& plan = *p.compiled.plan;
  const FlopsTable flops = flops_table(p, c.accumulate);
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
    std::printf("priced      %.4g ms a step by its roofline, %.4g tokens/s\n",
                1e3 * seconds_of(p, c), tokens / seconds_of(p, c));
  if (p.predicted)
    std::printf("predicted   %.4g ms a step (%.4g to %.4g) by calls timed on this machine%s\n",
                1e3 * p.predicted->seconds, 1e3 * p.predicted->low, 1e3 * p.predicted->high,
                p.predicted->share_unknown > 0.005
                    ? cat(", ", std::lround(100 * p.predicted->share_unknown),
                          " % of it by calls of other kinds")
                          .c_str()
                    : "");
  if (o.tokens_total > 0) {
    const RunCost run = run_cost(p, c, o.tokens_total);
    std::printf("a run       %.4g tokens in %.10g steps: %.4g FLOPs, %.4g bytes moved at least%s\n",
                o.tokens_total, run.steps, run.flops, run.bytes,
                plan.target.bytes_per_s > 0
                    ? cat(", ", duration(run.seconds), " by its roofline").c_str()
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
  if (c.blockwise != "off")
    std::printf("blockwise   %.1f MiB arena instead of %.1f\n",
                static_cast<double>(cost.arena_bytes) / mib,
                static_cast<double>(p.whole_arena_bytes) / mib);
  print_recomputed(p.compiled.recomputed);
  std::printf(
      "compiled    %zu nodes -> %zu steps; build and autodiff %.2f ms, passes %.2f, plan %.2f\n",
      p.nodes, plan.steps.size(), p.build_ms, p.compiled.passes_ms, p.compiled.plan_ms);
  if (o.timings) std::fputs(to_text(p.compiled.reports).c_str(), stdout);
  if (!o.verbose) return;
  std::fputs(plan.to_string().c_str(), stdout);
  if (p.update.plan) std::fputs(p.update.plan->to_string().c_str(), stdout);
}

// As training would find it: from the text, unless it is given.
Result<int64_t> vocab_size(const Options& o, const TrainConfig& c) {
  if (c.data.empty() || o.has_own_vocabulary) return o.vocab_size;
  const TextData text = TEGULA_TRY(load_text(c.data));
  const Tokenizer tokenizer = TEGULA_TRY(Tokenizer::train(c.tokenizer, text.text));
  TEGULA_TRY(split_tokens(TEGULA_TRY(tokenizer.encode(text.text)), c.model.max_seqlen));
  std::fprintf(stderr, "%s\n", text.summary().c_str());
  return tokenizer.vocab_size();
}

Result<Planned> plan_best(const TrainConfig& c, const Target& target, int repeat) {
  Planned best = TEGULA_TRY(plan_once(c, target));
  for (int i = 1; i < repeat; ++i)
    if (Planned again = TEGULA_TRY(plan_once(c, target)); again.total_ms < best.total_ms)
      best = std::move(again);
  if (c.blockwise == "off") return best;
  TrainConfig whole = c;
  whole.blockwise = "off", whole.memory_bytes = 0;
  best.whole_arena_bytes = TEGULA_TRY(plan_once(whole, target)).cost.arena_bytes;
  return best;
}

// What the plan is for: a preset, the GPU of this machine, or its CPU.
Result<Target> target_of(const Options& o, const TrainConfig& c) {
  if (o.target.empty()) {
    if (o.device != "cuda") {
      Rank rank(c.threads);
      if (o.measure) return measured_target(rank);
      return Target::this_cpu(rank.pool.n_threads());
    }
    const auto device = open_device();
    if (device.ok()) return (*device)->target();
    return unsupported(cat("--device cuda: ", device.error().message,
                           "; or name a GPU to plan for: --target h200"));
  }
  Target t = TEGULA_TRY(find_target(o.target));
  const bool is_cuda = t.device == DeviceKind::kCuda;
  if (!o.device.empty() && is_cuda != (o.device == "cuda"))
    return invalid_argument(cat("--target ", o.target, " is a ", is_cuda ? "GPU" : "CPU",
                                ": leave out --device ", o.device));
  if (!is_cuda && c.threads > 0) t.n_threads = c.threads;
  return t;
}

Status run(const Options& o) {
  if (!o.load.empty()) return show(o.load);
  TrainConfig c = TEGULA_TRY(o.flags.resolve());
  for (const NamedPath& out : {NamedPath{"--save", o.save}, {"--gantt", o.stages.gantt}})
    TEGULA_TRY(keep_inputs(out, {{"--data", c.data}, {"--config", o.config_file}}));
  c.model.vocab_size = TEGULA_TRY(vocab_size(o, c));
  TEGULA_TRY(c.model.resolve());
  const Target target = TEGULA_TRY(target_of(o, c));
  // GPU kernels have no shards yet.
  if (target.device == DeviceKind::kCuda && !o.has_mode) c.mode = "fast";
  if (o.stages.n > 1 || !o.stages.gantt.empty()) return plan_stages(c, target, o.stages);
  if (o.sharding.asked()) {
    ShardingFlags sharding = o.sharding;
    sharding.mesh = o.flags.mesh;
    return plan_sharding(c, sharding);
  }
  if (c.mesh.n_ranks() > 1) return plan_ranks(c, target);
  Planned p = TEGULA_TRY(plan_best(c, target, o.repeat));
  if (o.calibrate)
    p.predicted = TEGULA_TRY(predict_step(c, target, *p.compiled.plan, p.update.plan.get()));
  if (o.verify)
    for (const Plan* each : {p.compiled.plan.get(), p.update.plan.get()})
      if (each) TEGULA_TRY(verify_plan(*each));
  if (!o.save.empty()) TEGULA_TRY(write_result(o.save, plan_to_json(*p.compiled.plan)));
  const bool is_here = o.target.empty() && o.device != "cuda";
  if (const std::string note = is_here ? memory_note(c, p.cost) : ""; !note.empty())
    std::fprintf(stderr, "note: %s\n", note.c_str());
  c.json ? print_json(p, c, o) : print_text(p, c, o);
  return {};
}

}  // namespace

void add_plan(CLI::App& app, int& exit_code) {
  auto* cmd = app.add_subcommand("plan", "What a training step will cost, without running it");
  cmd->footer("tegula plan MODEL … plans a model on a cluster: see tegula plan MODEL --help.");
  static Options o;
  o.flags.add_to(*cmd, Purpose::kPlan);
  whole(cmd->add_option("--vocab-size", o.vocab_size, "Tokens in the vocabulary, without --data"),
        1, 1 << 24);
  whole(cmd->add_option("--repeat", o.repeat, "Plan so many times, report the fastest"), 1);
  real(cmd->add_option("--tokens-total", o.tokens_total,
                       "Also what a run over so many tokens costs: 1e13")
           ->type_name("N"),
       1, 1e18);
  auto* stages = add_stages(*cmd, o.stages);
  auto* save = cmd->add_option("--save", o.save, "Write the plan to FILE as JSON");
  cmd->add_option("--load", o.load, "Print the table of a saved plan, as --verbose does")
      ->excludes(save);
  for (const char* of_one : {"--save", "--tokens-total", "--repeat"}) {
    stages->excludes(cmd->get_option(of_one));
    cmd->get_option("--mesh")->excludes(cmd->get_option(of_one));
  }
  stages->excludes(cmd->get_option("--mesh"));
  add_sharding(*cmd, o.sharding);
  cmd->add_option("--target", o.target,
                  "The machine to plan for: h200, l4, zen4, …; default: this one")
      ->type_name("NAME");
  one_of(cmd->add_option("--device", o.device, "Where; default: the target's, else cpu"),
         {"cpu", "cuda"});
  cmd->add_flag("--measure", o.measure,
                "Time this machine's CPU first, under a second, so that the step is priced")
      ->excludes(cmd->get_option("--target"))
      ->excludes(cmd->get_option("--device"));
  auto* calibrate =
      cmd->add_flag("--calibrate", o.calibrate,
                    "Predict the step's time from this CPU's kernel calls, timed once and kept in "
                    "the user's cache");
  for (const char* other : {"--target", "--device", "--mesh"})
    calibrate->excludes(cmd->get_option(other));
  stages->excludes(calibrate);
  cmd->add_flag("--timings", o.timings, "Time and effect of every pass");
  cmd->add_flag("--verify", o.verify, "Check the plan's memory, order and kernels independently");
  cmd->add_flag("--verbose", o.verbose, "Print FLOPs by layer and op, every step and every buffer");
  cmd->callback([cmd, &exit_code] {
    for (const CLI::Option* other : cmd->parse_order())
      if (!o.load.empty() && other->get_name() != "--load")
        throw CLI::ValidationError(cat("--load prints a saved plan and has no use for ",
                                       other->get_name(), ": leave it out"),
                                   CLI::ExitCodes::ValidationError);
    o.has_own_vocabulary = is_on_command_line(*cmd, "--vocab-size");
    if (o.has_own_vocabulary)
      for (const char* flag : {"--data", "--tokenizer"})
        if (is_on_command_line(*cmd, flag))
          throw CLI::ValidationError(cat("--vocab-size and ", flag,
                                         " both say what the vocabulary ", "is: give one of them"),
                                     CLI::ExitCodes::ValidationError);
    if (is_on_command_line(*cmd, "--tokenizer") && o.flags.config.data.empty())
      throw CLI::ValidationError("--tokenizer needs --data, the text that it is made for",
                                 CLI::ExitCodes::ValidationError);
    o.has_mode = cmd->get_option("--mode")->count() > 0;
    o.config_file = config_file(*cmd);
    const Status st = run(o);
    exit_code = st.ok() ? kDone : report(st.error());
  });
}

}  // namespace tegula::cli
