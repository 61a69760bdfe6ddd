// tegula tune: times kernels' sizes on this machine and keeps the fastest for later plans.
#include <cstdio>

#include "cli/bench.h"
#include "cli/command.h"
#include "cli/machine.h"
#include "cli/process.h"
#include "cli/train_flags.h"
#include "tegula/base/algorithm.h"
#include "tegula/io/json.h"
#include "tegula/ops/math.h"
#include "tegula/runtime/compile.h"
#include "tegula/train/step.h"

namespace tegula::cli {

namespace {

struct Options {
  std::string shape, dtype = "f32", mode = "full", directory;
  bool is_exhaustive = false, json = false;
  int threads = 0;
  int64_t vocab_size = 50257;
  TrainFlags train;
};

Result<std::shared_ptr<const Plan>> gemm_plan(const Options& o, int n_threads) {
  const auto sizes = TEGULA_TRY(shape_numbers(o.shape, 3, "M,N,K"));
  const int64_t m = sizes[0], n = sizes[1], k = sizes[2];
  auto module = std::make_shared<Module>();
  Builder b(*module, "gemm");
  const DType t = *parse_dtype(o.dtype);
  b.result("c", matmul(b.param("a", {t, {m, k}}), b.param("b", {t, {k, n}})));
  const FuncId f = TEGULA_TRY(b.finish_into_module());
  CompileOptions options;
  options.plan.target = Target::this_cpu(n_threads);
  return TEGULA_TRY(compile(module, f, options)).plan;
}

Result<std::shared_ptr<const Plan>> train_plan(const Options& o, int n_threads) {
  TrainConfig c = TEGULA_TRY(o.train.resolve());
  c.model.vocab_size = o.vocab_size;
  TEGULA_TRY(c.model.resolve());
  const auto f = TEGULA_TRY(build_step_functions(c));
  c.tune = "off";
  const FuncId id = c.accumulate > 1 ? f.micro_step : f.train_step;
  const Compiled compiled =
      TEGULA_TRY(compile(f.module, id, compile_options(c, Target::this_cpu(n_threads))));
  if (const std::string note = note_on_blocks(c, compiled.reports); !note.empty()) print_note(note);
  return compiled.plan;
}

Json knobs_json(const KernelDef& kernel, const Tuning& tuning) {
  Json out = Json::object();
  for (size_t i = 0; i < Tuning::kKnobs; ++i)
    if (!kernel.tuning->knobs[i].empty()) out.set(kernel.tuning->knobs[i], tuning.knob[i]);
  return out;
}

// The learned search beside all points, on the plan's one product; the winners of both and the
// kernel's rule are timed once more, together.
Status exhaust(const Options& o, const Plan& plan, Rank& rank) {
  const auto step = std::find_if(plan.steps.begin(), plan.steps.end(),
                                 [](const Step& s) { return s.kernel && s.kernel->tuning; });
  if (step == plan.steps.end()) return unsupported("no kernel of this product has sizes to tune");
  std::vector<TensorRef> in, out;
  for (const PlanTensor& t : step->in) in.push_back(contiguous_ref(nullptr, t.type));
  for (const PlanTensor& t : step->out) out.push_back(contiguous_ref(nullptr, t.type));
  const KernelQuery query{&step->attrs, in, out, nullptr, &plan.target};
  CallTuner tuner =
      TEGULA_TRY(CallTuner::create(*step->kernel, query, rank, probe_core(rank.pool)));
  const int points = static_cast<int>(tuner.points().size());
  const auto learned = tuner.search(points / 10, 1e9);
  const size_t tuned = tuner.choose(learned, 1e9).point;
  const auto all = tuner.exhaustive();
  // The rule and the choice are points too: the best is that of all these, timed together.
  std::vector<size_t> last = {0, tuned};
  for (size_t i = 0; i < std::min<size_t>(5, all.size()); ++i) last.push_back(all[i].point);
  const auto ms = tuner.compare(last, 15);
  const auto at = std::min_element(ms.begin(), ms.end()) - ms.begin();
  const double best_ms = ms[static_cast<size_t>(at)];
  const size_t best = last[static_cast<size_t>(at)];
  const Json j = Json::object({{"shape", o.shape},
                               {"dtype", o.dtype},
                               {"threads", rank.pool.n_threads()},
                               {"kernel", step->kernel->name},
                               {"points", points},
                               {"trials", static_cast<int64_t>(learned.size())},
                               {"rule_ms", ms[0]},
                               {"tuned_ms", ms[1]},
                               {"best_ms", best_ms},
                               {"reached", best_ms / ms[1]},
                               {"rule_reaches", best_ms / ms[0]},
                               {"tuned", knobs_json(*step->kernel, tuner.points()[tuned])},
                               {"best", knobs_json(*step->kernel, tuner.points()[best])}});
  if (o.json) {
    print_line(j);
    return {};
  }
  std::printf("%s on %d threads: %d points, %zu trials\n", o.shape.c_str(), rank.pool.n_threads(),
              points, learned.size());
  std::printf("the rule %.4g ms, tuned %.4g ms, best of all %.4g ms: tuning reaches %.1f %%\n",
              ms[0], ms[1], best_ms, 100 * best_ms / ms[1]);
  return {};
}

Status run(const Options& o, bool is_train) {
  Rank rank(is_train ? o.train.config.threads : o.threads);
  const auto plan = TEGULA_TRY(is_train ? train_plan(o, rank.pool.n_threads())
                                        : gemm_plan(o, rank.pool.n_threads()));
  if (o.is_exhaustive) return exhaust(o, *plan, rank);
  const std::string mode = is_train && o.train.config.tune != "off" ? o.train.config.tune : o.mode;
  TuneOptions options;
  options.mode = TEGULA_TRY(parse_tune_mode(mode));
  options.directory = is_train ? o.train.config.tune_cache : o.directory;
  TuningTable table(tuning_directory(options), machine_name());
  if (!table.warning().empty()) print_note(table.warning());
  const int timed = TEGULA_TRY(tune_plan(*plan, rank, options.mode, table));
  TEGULA_TRY(table.save());
  Json::Array rows;
  double rule_ms = 0, ms = 0;
  for (const std::string& key : tunable_calls(*plan)) {
    const TunedCall* c = table.find(key);
    if (!c) continue;
    Json::Array knobs(std::begin(c->tuning.knob), std::end(c->tuning.knob));
    rows.emplace_back(Json::object({{"call", key},
                                    {"points", c->points},
                                    {"trials", c->trials},
                                    {"rule_ms", c->default_ms},
                                    {"ms", c->ms},
                                    {"tuning", std::move(knobs)}}));
    rule_ms += c->default_ms, ms += c->ms;
    if (!(is_train ? o.train.config.json : o.json))
      std::printf("%8.4g ms, by rule %8.4g  %s\n", c->ms, c->default_ms, key.c_str());
  }
  if (is_train ? o.train.config.json : o.json) {
    print_line(Json::object({{"timed", timed},
                             {"rule_ms", rule_ms},
                             {"ms", ms},
                             {"table", table.path()},
                             {"calls", std::move(rows)}}));
    return {};
  }
  std::printf("%d calls timed; one of each takes %.4g ms, by rule %.4g ms; kept in %s\n", timed, ms,
              rule_ms, table.path().empty() ? "memory only" : table.path().c_str());
  return {};
}

}  // namespace

void add_tune(const Command& app, int& exit_code) {
  const auto tune =
      app.add_command("tune", "Times kernels' sizes on this machine, for later plans");
  tune.require_command();
  static Options o;
  const auto add = [&](const char* name, const char* doc, bool is_train) {
    const auto cmd = tune.add_command(name, doc);
    cmd.callback([&exit_code, is_train] { exit_code = report(run(o, is_train), kUsage); });
    return cmd;
  };
  const auto gemm = add("gemm", "A matrix product", false);
  gemm.add_option("--shape", o.shape, "M,N,K: [M, K] times [K, N]").required();
  one_of(gemm.add_option("--dtype", o.dtype, "Of the operands"), {"f32", "bf16", "f16"});
  add_threads(gemm, o.threads);
  gemm.add_flag("--exhaustive", o.is_exhaustive,
                "Time every point too, and say how near a tenth of the trials came; keeps nothing");
  one_of(gemm.add_option("--tune", o.mode, "Budget"), {"quick", "full"});
  gemm.add_option("--tune-cache", o.directory, "Directory of tunings; default: the user's cache")
      .type_name("DIR");
  gemm.add_flag("--json", o.json, "One JSON object on the last line");
  const auto train = add("train", "Every product of a training step", true);
  o.train.add_to(train, Purpose::kStep);
  whole(train.add_option("--vocab-size", o.vocab_size, "Tokens in the vocabulary"), 1, 1 << 24);
}

}  // namespace tegula::cli
