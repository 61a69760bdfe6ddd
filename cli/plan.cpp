#include "cli/plan.h"

#include <cstdio>

#include "cli/command.h"
#include "cli/config.h"
#include "cli/machine.h"
#include "cli/paths.h"
#include "cli/process.h"
#include "cli/train_flags.h"
#include "tegula/base/clock.h"
#include "tegula/base/thread_pool.h"
#include "tegula/io/file.h"
#include "tegula/io/text_data.h"
#include "tegula/kernels/device.h"
#include "tegula/plan/plan_json.h"
#include "tegula/plan/verify.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/measured_target.h"
#include "tegula/text/tokenizer.h"
#include "tegula/train/device_memory.h"
#include "tegula/train/pipeline.h"
#include "tegula/train/step.h"

namespace tegula::cli {

namespace {

struct Options {
  TrainFlags flags;
  int64_t vocab_size = 50257;
  bool verbose = false, timings = false, verify = false, measure = false, calibrate = false;
  int repeat = 1;
  std::string save, load, config_file;
  std::string target, device, graph;
  double tokens_total = 0;  // of a run; 0: not asked
  Stages stages;
  ShardingFlags sharding;
  ConvFlags conv;
  OccupancyFlags occupancy;
  bool has_mode = false;
  bool has_own_vocabulary = false;  // --vocab-size on the command line, where the text may be one's
};

Result<Planned> plan_once(const TrainConfig& c, const Target& target) {
  Planned p;
  const Stopwatch watch;
  p.functions = TEGULA_TRY(build_step_functions(c));
  p.build_ms = watch.ms();
  p.parts = parts_of_step(c, p.functions);
  const FuncId f = p.parts[0].function;
  p.nodes = (*p.functions.module)[f].nodes.size();
  p.compiled = TEGULA_TRY(compile(p.functions.module, f, compile_options(c, target)));
  for (size_t i = 1; i < p.parts.size(); ++i)
    p.the_rest.push_back(
        TEGULA_TRY(compile(p.functions.module, p.parts[i].function, compile_options(c, target))));
  p.total_ms = watch.ms();
  p.cost = TEGULA_TRY(step_cost(c, p.plans()));
  return p;
}

Status show(const std::string& path) {
  const Plan plan = TEGULA_TRY(plan_from_json(TEGULA_TRY(read_file(path)), path));
  print_text(plan.to_string());
  return {};
}

// As training would find it: from the text, unless it is given.
Result<int64_t> vocab_size(const Options& o, const TrainConfig& c) {
  if (c.data.empty() || o.has_own_vocabulary) return o.vocab_size;
  const TextData text = TEGULA_TRY(load_text(c.data));
  const Tokenizer tokenizer = TEGULA_TRY(Tokenizer::train(c.tokenizer, text.text));
  TEGULA_TRY(split_tokens(TEGULA_TRY(tokenizer.encode(text.text)), c.row_length()));
  std::fprintf(stderr, "%s\n", printable(text.summary()).c_str());
  return tokenizer.vocab_size();
}

// c's budget for the arena and what all takes, where a budget for the device is given.
Result<std::optional<DeviceMemory>> fit_device(TrainConfig& c, const Target& target) {
  if (c.device_memory_bytes == 0) return std::optional<DeviceMemory>();
  const DeviceFit fit = TEGULA_TRY(fit_device_memory(c, target, c.device_memory_bytes));
  c.memory_bytes = fit.arena_budget_bytes;
  return std::optional(fit.memory);
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

// The target of the plan: a preset, the GPU of this machine, or its CPU.
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

Status show_occupancy(const Options& o) {
  if (!o.target.empty())
    return print_occupancy(TEGULA_TRY(find_target(o.target)), o.occupancy, o.flags.config.json);
  const auto device = open_device();
  if (device.ok()) return print_occupancy((*device)->target(), o.occupancy, o.flags.config.json);
  return unsupported(
      cat("--occupancy: ", device.error().message, "; or name a GPU: --target h100"));
}

Status run(const Options& o) {
  if (!o.load.empty()) return show(o.load);
  if (!o.occupancy.kernel.empty()) return show_occupancy(o);
  if (o.conv.asked()) {
    const TrainConfig& c = o.flags.config;
    return plan_conv(o.conv, o.flags.mesh, o.sharding.layout, o.sharding.on, c.dtype != "f32",
                     c.json);
  }
  TrainConfig c = TEGULA_TRY(o.flags.resolve());
  for (const NamedPath& out : {NamedPath{"--save", o.save}, {"--gantt", o.stages.gantt}})
    TEGULA_TRY(keep_inputs(out, {{"--data", c.data}, {"--config", o.config_file}}));
  c.rule_set = TEGULA_TRY(read_rules(c.rules));
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
  if (!o.graph.empty()) return print_graph(c, target, o.graph);
  if (has_pipeline(c)) return plan_pipeline(c, target);
  if (c.mesh.n_ranks() > 1) return plan_ranks(c, target);
  const auto all = TEGULA_TRY(fit_device(c, target));
  Planned p = TEGULA_TRY(plan_best(c, target, o.repeat));
  if (const std::string note = note_on_blocks(c, p.compiled.reports); !note.empty())
    print_note(note);
  p.of_device = all;
  if (o.calibrate) p.predicted = TEGULA_TRY(predict_step(c, target, p.parts, p.plans()));
  if (o.measure) p.measured = TEGULA_TRY(measure_step(c, p));
  if (o.verify)
    for (const Plan* each : p.plans()) TEGULA_TRY(verify_plan(*each));
  if (!o.save.empty()) TEGULA_TRY(write_result(o.save, plan_to_json(*p.compiled.plan)));
  const bool is_here = o.target.empty() && o.device != "cuda";
  if (const std::string note = is_here ? memory_note(c, p.cost) : ""; !note.empty())
    print_note(note);
  const PrintOptions how{o.tokens_total, o.verbose, o.timings};
  c.json ? print_json(p, c, how) : print_text(p, c, how);
  return {};
}

// A question instead of a step's plan, and the flags that it has a use for.
struct Instead {
  std::string_view flag, uses;  // by spaces
};
constexpr Instead kInsteads[] = {
    {"--load", ""},
    {"--conv", "--mesh --computation-layout --shard-on --dtype --json"},
    {"--occupancy", "--grid --memory-latency --target --json"}};

void refuse_others(const Command& cmd) {
  for (const Instead& i : kInsteads) {
    if (!is_on_command_line(cmd, std::string(i.flag))) continue;
    for (const Flag& other : cmd.given()) {
      const std::string name = other.name();
      const bool is_used = cat(" ", i.uses, " ").find(cat(" ", name, " ")) != std::string::npos;
      if (name != i.flag && !is_used && is_on_command_line(cmd, name))
        usage_error(cat(i.flag, " plans no step and has no use for ", name, ": leave it out"));
    }
  }
}

}  // namespace

void add_plan(const Command& app, int& exit_code) {
  const auto cmd = app.add_command("plan", "What a training step will cost, without running it");
  cmd.footer("tegula plan MODEL … plans a model on a cluster: see tegula plan MODEL --help.");
  static Options o;
  o.flags.add_to(cmd, Purpose::kPlan);
  whole(cmd.add_option("--vocab-size", o.vocab_size, "Tokens in the vocabulary, without --data"), 1,
        1 << 24);
  whole(cmd.add_option("--repeat", o.repeat, "Plan so many times, report the fastest"), 1);
  real(cmd.add_option("--tokens-total", o.tokens_total,
                      "Also what a run over so many tokens costs: 1e13")
           .type_name("N"),
       1, 1e18);
  const auto stages = add_stages(cmd, o.stages);
  const auto save = cmd.add_option("--save", o.save, "Write the plan to FILE as JSON");
  cmd.add_option("--load", o.load, "Print the table of a saved plan, as --verbose does")
      .excludes(save);
  for (const char* of_one : {"--save", "--tokens-total", "--repeat"}) {
    stages.excludes(cmd.flag(of_one));
    cmd.flag("--mesh").excludes(cmd.flag(of_one));
  }
  stages.excludes(cmd.flag("--mesh"));
  add_sharding(cmd, o.sharding);
  const auto conv = add_conv(cmd, o.conv);
  for (const char* of_step : {"--shard", "--search-sharding", "--save"})
    conv.excludes(cmd.flag(of_step));
  add_occupancy(cmd, o.occupancy).excludes(stages).excludes(save);
  cmd.add_option("--target", o.target,
                 "The machine to plan for: h200, l4, zen4, …; default: this one")
      .type_name("NAME");
  one_of(cmd.add_option("--device", o.device, "Where; default: the target's, else cpu"),
         {"cpu", "cuda"});
  cmd.add_flag("--measure", o.measure,
               "Time this machine's CPU first, under a second, so that the step is priced, and run "
               "it a few times beside that")
      .excludes(cmd.flag("--target"))
      .excludes(cmd.flag("--device"));
  const auto calibrate =
      cmd.add_flag("--calibrate", o.calibrate,
                   "Predict the step's time from this CPU's kernel calls, timed once and kept in "
                   "the user's cache");
  for (const char* other : {"--target", "--device", "--mesh"}) calibrate.excludes(cmd.flag(other));
  stages.excludes(calibrate);
  const auto graph = cmd.add_option("--graph", o.graph,
                                    "Print the graph instead: step (with --mesh, where every value "
                                    "lies on it) or rank (what one of them runs)");
  one_of(graph, {"step", "rank"});
  for (const char* other : {"--json", "--save", "--tokens-total", "--repeat",
                            "--computation-layout", "--shard", "--search-sharding", "--calibrate"})
    graph.excludes(cmd.flag(other));
  stages.excludes(graph);
  for (const Flag& of_one :
       {cmd.add_flag("--timings", o.timings, "Time and effect of every pass"),
        cmd.add_flag("--verify", o.verify,
                     "Check the plan's memory, order and kernels independently"),
        cmd.add_flag("--verbose", o.verbose,
                     "Print FLOPs by layer and op, every step and every buffer")})
    of_one.excludes(graph).excludes(stages).excludes(cmd.flag("--mesh"));
  cmd.callback([cmd, &exit_code] {
    refuse_others(cmd);
    o.has_own_vocabulary = is_on_command_line(cmd, "--vocab-size");
    if (o.has_own_vocabulary)
      for (const char* flag : {"--data", "--tokenizer"})
        if (is_on_command_line(cmd, flag))
          usage_error(cat("--vocab-size and ", flag, " both say what the vocabulary ",
                          "is: give one of them"));
    if (is_on_command_line(cmd, "--tokenizer") && o.flags.config.data.empty())
      usage_error("--tokenizer needs --data, the text that it is made for");
    o.has_mode = cmd.flag("--mode").is_given();
    o.config_file = config_file(cmd);
    exit_code = report(run(o));
  });
}

}  // namespace tegula::cli
