#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>

#include "cli/command.h"
#include "cli/train_flags.h"
#include "tegula/base/thread_pool.h"
#include "tegula/io/file.h"
#include "tegula/io/json.h"
#include "tegula/plan/plan_json.h"
#include "tegula/plan/verify.h"
#include "tegula/runtime/compile.h"
#include "tegula/train/step.h"

namespace tegula::cli {

namespace {

struct Options {
  TrainFlags flags;
  int64_t vocab_size = 50257;
  bool verbose = false, timings = false, verify = false;
  int repeat = 1;
  std::string save, load;
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
  int64_t whole_arena_bytes = 0;  // without --blockwise
};

Result<Planned> plan_once(const TrainConfig& c, int n_threads) {
  Planned p;
  const auto start = Clock::now();
  p.functions = TEGULA_TRY(build_step_functions(c));
  p.build_ms = ms_since(start);
  const FuncId f = c.accumulate > 1 ? p.functions.micro_step : p.functions.train_step;
  p.nodes = (*p.functions.module)[f].nodes.size();
  p.compiled = TEGULA_TRY(compile(p.functions.module, f, compile_options(c, n_threads)));
  if (c.accumulate > 1)
    p.update =
        TEGULA_TRY(compile(p.functions.module, p.functions.update, compile_options(c, n_threads)));
  p.total_ms = ms_since(start);
  p.cost = step_cost(c, *p.compiled.plan, p.update.plan.get());
  return p;
}

int show(const std::string& path) {
  auto text = read_file(path);
  if (!text.ok()) return report(text.error());
  auto plan = plan_from_json(*text, path);
  if (!plan.ok()) return report(plan.error());
  std::fputs(plan->to_string().c_str(), stdout);
  return 0;
}

int run(const Options& o) {
  if (!o.load.empty()) return show(o.load);
  auto resolved = o.flags.resolve();
  if (!resolved.ok()) return report(resolved.error());
  TrainConfig c = std::move(*resolved);
  c.model.vocab_size = o.vocab_size;
  auto st = c.model.resolve();
  if (!st.ok()) return report(st.error());
  const int n_threads = ThreadPool(c.threads).n_threads();
  Result<Planned> best = plan_once(c, n_threads);
  for (int i = 1; i < o.repeat && best.ok(); ++i) {
    auto again = plan_once(c, n_threads);
    if (again.ok() && again->total_ms < best->total_ms) best = std::move(again);
  }
  if (!best.ok()) return report(best.error());
  if (c.blockwise != "off") {
    TrainConfig whole = c;
    whole.blockwise = "off", whole.memory_bytes = 0;
    auto other = plan_once(whole, n_threads);
    if (!other.ok()) return report(other.error());
    best->whole_arena_bytes = other->cost.arena_bytes;
  }
  const Planned& p = *best;
  const Plan& plan = *p.compiled.plan;
  if (o.verify)
    for (const Plan* each : {&plan, p.update.plan.get()})
      if (each)
        if (auto valid = verify_plan(*each); !valid.ok()) return report(valid.error());
  if (!o.save.empty())
    if (auto saved = replace_file(o.save, plan_to_json(plan)); !saved.ok())
      return report(saved.error());
  const StepCost& cost = p.cost;
  const double tokens = static_cast<double>(c.batch * c.accumulate * c.model.max_seqlen);
  if (c.json) {
    const Json j = Json::object({{"params", parameter_count(p.functions.weights)},
                                 {"nodes_built", static_cast<int64_t>(p.nodes)},
                                 {"steps", static_cast<int64_t>(plan.steps.size())},
                                 {"flops_per_step", cost.flops},
                                 {"bytes_per_step", cost.bytes},
                                 {"state_bytes", cost.state_bytes},
                                 {"arena_bytes", cost.arena_bytes},
                                 {"arena_lower_bound_bytes", cost.lower_bound_bytes},
                                 {"arena_without_blockwise_bytes",
                                  c.blockwise == "off" ? cost.arena_bytes : p.whole_arena_bytes},
                                 {"build_ms", p.build_ms},
                                 {"passes_ms", p.compiled.passes_ms},
                                 {"plan_ms", p.compiled.plan_ms},
                                 {"total_ms", p.total_ms}});
    std::printf("%s\n", j.dump().c_str());
    return 0;
  }
  const double mib = 1 << 20;
  std::printf("model       %s, %lld parameters\n", c.model.type.c_str(),
              static_cast<long long>(parameter_count(p.functions.weights)));
  std::printf("a step      %.4g FLOPs (%.4g a token), %.4g bytes moved at least\n",
              static_cast<double>(cost.flops), static_cast<double>(cost.flops) / tokens,
              static_cast<double>(cost.bytes));
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
  std::printf(
      "compiled    %zu nodes -> %zu steps; build and autodiff %.2f ms, passes %.2f, plan %.2f\n",
      p.nodes, plan.steps.size(), p.build_ms, p.compiled.passes_ms, p.compiled.plan_ms);
  if (o.timings) std::fputs(to_text(p.compiled.reports).c_str(), stdout);
  if (o.verbose) {
    std::fputs(plan.to_string().c_str(), stdout);
    if (p.update.plan) std::fputs(p.update.plan->to_string().c_str(), stdout);
  }
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, int& exit_code) {
  auto* cmd = app.add_subcommand("plan", "What a training step will cost, without running it");
  static Options o;
  o.flags.add_to(*cmd, /*needs_data=*/false);
  whole(cmd->add_option("--vocab-size", o.vocab_size, "Tokens in the vocabulary"), 1, 1 << 24);
  whole(cmd->add_option("--repeat", o.repeat, "Plan so many times, report the fastest"), 1);
  auto* save = cmd->add_option("--save", o.save, "Write the plan to FILE as JSON");
  cmd->add_option("--load", o.load, "Print the table of a saved plan, as --verbose does")
      ->excludes(save);
  cmd->add_flag("--timings", o.timings, "Time and effect of every pass");
  cmd->add_flag("--verify", o.verify, "Check the plan's memory, order and kernels independently");
  cmd->add_flag("--verbose", o.verbose, "Print every step and buffer of the plan");
  cmd->callback([&exit_code] { exit_code = run(o); });
}

}  // namespace tegula::cli
