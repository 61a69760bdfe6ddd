// `tegula bench graph`: a graph from a file, as the passes make it and as --superopt does, timed in
// turns.
#include <cstdio>

#include "cli/bench.h"
#include "cli/command.h"
#include "cli/machine.h"
#include "tegula/base/algorithm.h"
#include "tegula/io/file.h"
#include "tegula/ir/text.h"
#include "tegula/ir/verify.h"

namespace tegula::cli {

namespace {

struct Options {
  std::string file, function, mode = "fast", passes, cache, rules, device = "cpu";
  double superopt = 0;
  int threads = 0, repeats = 9;
  bool json = false;
};

Result<Module> graph_of(const Options& o) {
  auto module = module_from_text(TEGULA_TRY(read_file(o.file)));
  if (!module.ok()) return invalid_argument(cat(o.file, ":", module.error().message));
  if (const Status st = verify(*module); !st.ok())
    return invalid_argument(cat(o.file, ": ", st.error().message));
  if (module->functions.empty()) return invalid_argument(cat(o.file, ": has no function"));
  if (!module->symbols.empty())
    return unsupported(cat(o.file, ": symbol ", module->symbols[0].name,
                           " has no extent here: write a number instead"));
  return module;
}

// The one that is named, or the first.
Result<FuncId> function_of(const Module& module, const Options& o) {
  for (FuncId f = 0; f < module.functions.size(); ++f)
    if (o.function.empty() || module[f].name == o.function) return f;
  return invalid_argument(cat(o.file, ": has no function ", o.function));
}

Result<Compiled> compile_graph(const Module& module, FuncId f, const Options& o, double superopt,
                               const Rank& rank) {
  CompileOptions with;
  with.plan.target = rank.device ? rank.device->target() : Target::this_cpu(rank.pool.n_threads());
  with.passes.passes = o.passes;
  with.passes.pass.mode = o.mode == "fast" ? Mode::kFast : Mode::kExact;
  with.superopt_seconds = superopt;
  if (superopt > 0) with.rules = TEGULA_TRY(read_rules(o.rules));
  with.tune.directory = o.cache;
  return compile(std::make_shared<Module>(module), f, with);
}

Status run(const Options& o) {
  const Module module = TEGULA_TRY(graph_of(o));
  const FuncId f = TEGULA_TRY(function_of(module, o));
  Device* const device = o.device == "cuda" ? TEGULA_TRY(open_device()) : nullptr;
  Rank rank = device ? Rank(*device) : Rank(o.threads);
  const Compiled before = TEGULA_TRY(compile_graph(module, f, o, 0, rank));
  const Compiled after = TEGULA_TRY(compile_graph(module, f, o, o.superopt, rank));
  if (device) TEGULA_TRY(check_kernels(*before.plan, *device));
  Measurement m[2] = {TEGULA_TRY(Measurement::create(before.plan, rank, {})),
                      TEGULA_TRY(Measurement::create(after.plan, rank, {}))};
  int runs[2];
  for (size_t k = 0; k < 2; ++k) {
    TEGULA_TRY(m[k].time(2));  // a device compiles, and makes a graph
    const double one = std::max(TEGULA_TRY(m[k].time()), 1e-7);
    runs[k] = static_cast<int>(std::clamp(.01 / one, 1., 1e5));
    if (device) TEGULA_TRY(m[k].time(10 * runs[k]));  // its clocks are those of the last 0.1 s
  }
  std::vector<double> ms[2], ratios;
  for (int i = 0; i < o.repeats; ++i) {
    for (size_t k = 0; k < 2; ++k) ms[k].push_back(1e3 * TEGULA_TRY(m[k].time(runs[k])));
    ratios.push_back(ms[0].back() / ms[1].back());
  }
  for (auto* all : {&ms[0], &ms[1], &ratios}) std::sort(all->begin(), all->end());
  const Target& target = before.plan->target;
  const auto mid = static_cast<size_t>(o.repeats / 2);
  if (o.json) {
    Json j = json_of(after.rewritten);
    j.set("ms_without", ms[0][mid]), j.set("ms", ms[1][mid]), j.set("times_faster", ratios[mid]);
    j.set("threads", rank.pool.n_threads()), j.set("device", target.name);
    print_line(j);
    return {};
  }
  std::printf("%s of %s, %s, %d threads, %zu steps: %.4g ms\n", module[f].name.c_str(),
              o.file.c_str(), target.name.c_str(), rank.pool.n_threads(), before.plan->steps.size(),
              ms[0][mid]);
  if (o.superopt == 0) return {};
  print_lines(after.rewritten.lines());
  std::printf("with --superopt %zu steps: %.4g ms, %.2f x\n", after.plan->steps.size(), ms[1][mid],
              ratios[mid]);
  return {};
}

}  // namespace

Json json_of(const superopt::Found& found) {
  Json::Array rules;
  for (const superopt::TakenRule& r : found.rules)
    rules.push_back(Json::object(
        {{"name", r.name}, {"times", r.times}, {"order", r.keeps_order ? "kept" : "changed"}}));
  return Json::object(
      {{"rules", std::move(rules)},
       {"blocks", found.n_blocks},
       {"distinct", found.n_distinct},
       {"changed", found.n_changed},
       {"candidates", found.n_candidates},
       {"search_s", found.seconds},
       {"ready_s", found.ready_s},
       {"is_budget_spent", found.is_spent},
       {"priced_ms", Json::Array{1e3 * found.priced_before_s, 1e3 * found.priced_after_s}},
       {"timed_ms", Json::Array{1e3 * found.timed_before_s, 1e3 * found.timed_after_s}}});
}

void print_lines(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) std::printf("%s\n", line.c_str());
}

void add_superopt(const Command& cmd, double& seconds, std::string& rules) {
  const Flag flag = cmd.add_option(
      "--superopt", seconds,
      "Search so many seconds for rewritings by proven rules that are faster; 0: not at all");
  real(flag, 0, 1e6).type_name("SECONDS");
  cmd.add_option("--rules", rules, "More rules for it, as tegula rules generate writes them")
      .needs(flag)
      .refuse_empty()
      .type_name("FILE");
}

void add_bench_graph(const Command& bench, int& exit_code) {
  static Options o;
  const auto cmd =
      bench.add_command("graph", "A graph from a file, without and with --superopt in turns");
  cmd.add_option("file", o.file, "The graph as text: tegula plan --graph prints one")
      .type_name("FILE")
      .required();
  cmd.add_option("--function", o.function, "Which of the file's; default: the first")
      .type_name("NAME");
  add_superopt(cmd, o.superopt, o.rules);
  one_of(cmd.add_option("--mode", o.mode, "exact: only rules that keep every bit"),
         {"exact", "fast"});
  cmd.add_option("--passes", o.passes, "Passes to leave out, e.g. -fuse,-cse").type_name("LIST");
  cmd.add_option("--tune-cache", o.cache, "Where rewritings are kept; default: the user's cache")
      .type_name("DIR");
  add_threads(cmd, o.threads);
  one_of(cmd.add_option("--device", o.device, "Where"), {"cpu", "cuda"});
  whole(cmd.add_option("--repeats", o.repeats, "Timed samples; the median counts"), 1, 10000);
  cmd.add_flag("--json", o.json, "One JSON object on the last line");
  cmd.callback([&exit_code] {
    const bool is_both = o.device == "cuda" && o.threads > 0;
    exit_code = is_both ? report(unsupported("--threads is the CPU's: leave it out with --device "
                                             "cuda"),
                                 kUsage)
                        : report(run(o));
  });
}

}  // namespace tegula::cli
