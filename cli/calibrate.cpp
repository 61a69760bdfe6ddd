#include <chrono>
#include <cmath>
#include <cstdio>
#include <thread>

#include "cli/bench.h"
#include "cli/plan.h"
#include "cli/process.h"
#include "tegula/base/algorithm.h"
#include "tegula/base/median.h"
#include "tegula/io/file.h"
#include "tegula/runtime/probe.h"
#include "tegula/train/step.h"

namespace tegula::cli {

namespace {

constexpr int kGraphs = 48;         // some of each family
constexpr int kStepRuns = 7;        // of which the median counts
constexpr double kMostFlops = 6e9;  // of a step
// The share of the cores' multiply-adds that several threads must get by the wall's clock, or
// others are at work; how often that is looked at, and how long quiet is waited for in all.
constexpr double kQuietShare = 0.95, kLookEvery_s = 0.25, kPatience_s = 120;
// Families whose steps hold each kernel of training: five of twelve graphs are of GPT-2, and so on.
constexpr const char* kFamilies[] = {"gpt2", "gpt2",  "llama", "gpt2", "llama", "moe",
                                     "gpt2", "llama", "lstm",  "gpt2", "llama", "mlp"};

// The i-th number of the sequence of a prime base, which fills [0, 1) evenly. [Halton 1960]
double halton(int i, int base) {
  double f = 1, r = 0;
  for (; i > 0; i /= base) f /= base, r += f * (i % base);
  return r;
}

// From `low` to `high`, evenly in its logarithm.
int64_t between(double u, double low, double high) {
  return static_cast<int64_t>(std::lround(low * std::pow(high / low, u)));
}

// One to three layers, widths 32 to 512, sequences of 16 to 512, 64 to 4,096 tokens a step.
TrainConfig graph(int i, const std::string& dtype) {
  TrainConfig c;
  ModelConfig& m = c.model;
  m.type = kFamilies[i % static_cast<int>(std::size(kFamilies))];
  m.n_layers = 1 + i % 3;
  const int64_t head_dim = int64_t{16} << static_cast<int>(3 * halton(i + 1, 2));
  m.d_model = std::max<int64_t>(1, between(halton(i + 1, 3), 32, 512) / head_dim) * head_dim;
  m.n_heads = m.d_model / head_dim;
  m.max_seqlen = 8 * between(halton(i + 1, 5), 2, 64);
  m.vocab_size = between(halton(i + 1, 7), 40, 4096);
  const int64_t tokens = between(halton(i + 1, 11), 64, 4096);
  c.batch = std::max<int64_t>(1, tokens / m.max_seqlen);
  c.dtype = dtype;
  return c;
}

// Time that reading the clock takes, which every step has in its own.
double clock_seconds(const ThreadPool& pool) {
  constexpr int kReads = 1000;
  const double start = kernel_seconds(pool);
  double last = start;
  for (int i = 0; i < kReads; ++i) last = kernel_seconds(pool);
  return (last - start) / kReads;
}

Result<std::vector<double>> step_seconds(Measurement& m, double clock_s) {
  std::vector<std::vector<double>> runs;
  for (int i = 0; i < kStepRuns; ++i)
    for (size_t s = 0; const StepStats& stats : TEGULA_TRY(m.time_steps(1))) {
      if (i == 0) runs.emplace_back();
      runs[s++].push_back(stats.seconds);
    }
  std::vector<double> medians;
  for (const std::vector<double>& r : runs) medians.push_back(median(r) - clock_s);
  return medians;
}

// Several threads are timed by the wall's clock, on which others' work counts. So of each graph
// that time counts before and after which the threads had the cores for themselves.
class Quiet {
 public:
  explicit Quiet(ThreadPool& pool) : pool_(pool) {}
  // False counts as waiting, also where it undoes what was timed.
  bool is_here() {
    if (pool_.n_threads() == 1) return true;
    constexpr double kSeconds = 5e-3;
    most_ = std::max(most_, probe_flops(pool_));
    if (sustained_flops(pool_, kSeconds) >= kQuietShare * most_) return true;
    waited_s_ += kLookEvery_s;
    return false;
  }
  bool is_lost() const { return waited_s_ >= kPatience_s; }
  // Returns when it is quiet, or all patience is gone: then false.
  bool wait() {
    while (!is_here()) {
      if (is_lost()) return false;
      std::this_thread::sleep_for(std::chrono::duration<double>(kLookEvery_s));
    }
    return true;
  }

 private:
  ThreadPool& pool_;
  double most_ = 0, waited_s_ = 0;
};

Status measure(TrainConfig c, Rank& rank, Quiet& quiet, planner::Calibration& to) {
  TEGULA_TRY(c.model.resolve());
  const StepFunctions f = TEGULA_TRY(build_step_functions(c));
  BenchWork w;
  w.module = f.module, w.function = f.train_step, w.weights = f.weights;
  w.integers_below = c.model.vocab_size;
  BenchOptions how;
  how.repeats = 5;
  const CompileOptions with = compile_options(c, Target::this_cpu(rank.pool.n_threads()));
  if (TEGULA_TRY(compile(f.module, f.train_step, with)).plan->flops() > kMostFlops) return {};
  const StepFunctions again = TEGULA_TRY(build_step_functions(c));
  w.module = again.module, w.function = again.train_step;
  BenchRun run = TEGULA_TRY(time_work(w, how, with, rank));
  for (;;) {
    const bool has_patience = quiet.wait();
    const double whole_s = TEGULA_TRY(run.measurement.run()).ms_median / 1e3;
    const std::vector<double> seconds =
        TEGULA_TRY(step_seconds(run.measurement, clock_seconds(rank.pool)));
    if (has_patience && !quiet.is_here()) continue;
    to.add(run.measurement.session().plan(), rank.pool.n_threads(), seconds, whole_s);
    return {};
  }
}

}  // namespace

Result<planner::Calibration> calibrate(const TrainConfig& config, int n_threads) {
  planner::Calibration calibration(machine_name());
  const std::string directory = tuning_directory({});
  const std::string path = calibration.path(directory);
  if (!directory.empty() && path_exists(path))
    if (const Status s = calibration.load(directory); !s.ok()) print_note(s.error().message);
  const std::string set = cat("x", n_threads, " ", config.dtype);
  if (calibration.has(set)) return calibration;
  Rank rank(n_threads);
  Quiet quiet(rank.pool);
  std::fprintf(stderr, "Timing this machine's kernel calls once, for %s …\n", set.c_str());
  for (int i = 0; i < kGraphs; ++i)
    TEGULA_TRY(measure(graph(i, config.dtype), rank, quiet, calibration));
  calibration.mark(set);
  calibration.finish();
  if (quiet.is_lost())
    std::fprintf(stderr,
                 "note: others are at work on this machine: what was timed is too slow, and is not "
                 "kept\n");
  else
    TEGULA_TRY(calibration.save(directory));
  return calibration;
}

Result<planner::Predicted> predict_step(const TrainConfig& config, const Target& target,
                                        std::span<const StepPart> parts,
                                        std::span<const Plan* const> plans) {
  const planner::Calibration known = TEGULA_TRY(calibrate(config, target.n_threads));
  planner::Predicted sum;
  for (size_t i = 0; i < plans.size(); ++i) {
    const planner::Predicted more = known.predict(*plans[i], target.n_threads);
    const auto n = static_cast<double>(parts[i].times);
    sum.seconds += n * more.seconds, sum.low += n * more.low, sum.high += n * more.high;
  }
  return sum;
}

}  // namespace tegula::cli
