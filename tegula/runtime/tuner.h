// The tuner: finds the sizes with which a kernel is fastest on this machine, by timing few of them.
//
// A kernel's TuningSpace gives the points of a call and the work of each; the machine's speed makes
// that a prior (a roofline: time of the multiply-adds or of L1, whichever is longer, and of what
// comes from farther away); search() times a few in batches, in rounds with the kernel's own rule
// in each, and the median of the ratios counts. The best few are timed again, and one that is not
// clearly faster than the rule is not taken. Points never differ in bits, only in time.
#pragma once

#include <string>
#include <vector>

#include "tegula/plan/plan.h"
#include "tegula/plan/tuning_table.h"
#include "tegula/runtime/probe.h"
#include "tegula/runtime/rank.h"
#include "tegula/runtime/search.h"

namespace tegula {

enum class TuneMode : uint8_t { kOff, kQuick, kFull };
Result<TuneMode> parse_tune_mode(std::string_view text);  // off, quick, full

struct TuneOptions {
  TuneMode mode = TuneMode::kOff;
  // The table's; "": $XDG_CACHE_HOME/tegula, else $HOME/.cache/tegula, else in memory only.
  std::string directory;
};
std::string tuning_directory(const TuneOptions& options);

// Times the points of one call on memory of its own.
class CallTuner {
 public:
  static Result<CallTuner> create(const KernelDef& kernel, const KernelQuery& query, Rank& rank,
                                  const CoreSpeed& speed);

  const std::vector<Tuning>& points() const { return points_; }
  // Seconds that a point should take by its work and the machine's speed.
  double prior(size_t point) const { return prior_[point]; }
  // At most so many points, and no new batch after so many seconds. All that were timed, the best
  // first; exhaustive: all points, once each, and the best of them again.
  std::vector<Trial> search(int trials, double seconds);
  std::vector<Trial> exhaustive();
  // The best of the trials, after its like were timed again; the rule where none is clearly faster.
  struct Choice {
    size_t point = 0;
    double ms = 0, default_ms = 0;
  };
  Choice choose(const std::vector<Trial>& trials, double seconds);
  // Milliseconds of each point, medians of interleaved rounds.
  std::vector<double> compare(const std::vector<size_t>& points, int rounds);

 private:
  CallTuner(const KernelDef& kernel, const KernelQuery& query, Rank& rank);
  double sample(size_t point);
  void measure(std::span<const size_t> points, std::span<double> ratios, int rounds);

  const KernelDef* kernel_;
  KernelQuery query_;
  Rank* rank_;
  std::vector<TensorRef> in_, out_;
  std::vector<Region> memory_;
  Region workspace_;
  std::vector<Tuning> points_;
  std::vector<double> prior_;
  std::vector<std::vector<double>> features_;
  int runs_ = 1;  // of a sample
  double sample_seconds_ = 0;
  double best_ratio_ = 1;
};

// The tuning that a mode's budget finds. Quick: at most 24 trials, about half a second of them.
// Full: a tenth of the points, at least 32, twenty seconds.
Result<TunedCall> tune_call(const KernelDef& kernel, const KernelQuery& query, Rank& rank,
                            const CoreSpeed& speed, TuneMode mode);

// The keys of the calls of a plan that have something to tune, each once.
std::vector<std::string> tunable_calls(const Plan& plan);
// Tunes every call of the plan that the table lacks, the most work first. Returns how many.
Result<int> tune_plan(const Plan& plan, Rank& rank, TuneMode mode, TuningTable& table);

}  // namespace tegula
