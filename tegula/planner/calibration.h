// Calibration: what kernel calls took on one machine, and what the steps of a plan will take by it.
//
// A call is known by its kind (kernel, dtypes, which factors its operands share, which of them lies
// next to itself in memory, threads; of a fused loop its program) and by its size, the extents of
// those factors. Among the calls of its kind
//   seconds = nominal · exp(y),   nominal = 0.2 µs + flops / 5e10 + bytes / 2e10
// and y is predicted at the logarithms of its extents by locally weighted linear regression
// [Cleveland 1979] with a Gaussian kernel and a ridge that holds slopes back, so that outside what
// was measured the share of the nominal rate stays what it was at the edge. Of a kind that was not
// measured: by the nominal time alone, among the calls of that kernel, else among all.
// A step in regions takes as much as their calls, as often as its FLOPs say that they run.
//
// The interval is conformal: each measured graph is predicted from the others, and the ratios'
// 5th and 95th percentile (of n + 1) scale the prediction. [Vovk et al. 2005] The interval
// of steps with loops, within which nothing is timed, holds that of the graphs with loops, too.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tegula/plan/plan.h"
#include "tegula/planner/real.h"

namespace tegula::planner {

struct MeasuredCall {
  std::string kind, kernel;
  std::vector<double> extents;        // logarithms
  double nominal_s = 0, seconds = 0;  // seconds 0: not timed, within a loop
  int graph = 0;                      // of which it was a step
  double times = 1;                   // how often
};
// Describes what a step is, seconds and graph left open. Extents are bounds.
MeasuredCall describe(const Step& step, int n_threads);

struct Predicted {
  double seconds = 0, low = 0, high = 0;
  // The share of seconds that calls of kinds never measured take.
  double share_unknown = 0;
};

class Calibration {
 public:
  // `machine`: all that timings depend on besides the call.
  explicit Calibration(std::string machine) : machine_(std::move(machine)) {}

  // Steps of one plan with their seconds, and the seconds of a whole run of it, which has more
  // between its steps or less. Of steps in regions it is kept what they are, not how long they
  // took.
  void add(const Plan& plan, int n_threads, const std::vector<double>& seconds, double whole_s);
  // After the last add: how far runs are from the sums of their steps, and the interval.
  void finish();

  // One run of the plan. Without any call: an empty Predicted.
  Predicted predict(const Plan& plan, int n_threads) const;
  bool has(const std::string& what) const;  // of the sets of graphs that were measured
  void mark(std::string what) { sets_.push_back(std::move(what)); }
  size_t size() const { return calls_.size(); }
  int n_graphs() const { return static_cast<int>(wholes_.size()); }
  // Measured over predicted of each graph by the others, ascending; with loops or without.
  const std::vector<double>& ratios(bool has_loops = false) const { return ratios_[has_loops]; }

  // $DIRECTORY/calibration-HASH.json. Errors of reading: cut, altered, of another version or
  // machine; what to do.
  std::string path(const std::string& directory) const;
  Status save(const std::string& directory) const;
  Status load(const std::string& directory);

 private:
  static constexpr int kNoGraph = -1;
  struct Sum {
    double seconds = 0, unknown = 0;
  };
  double call_seconds(const MeasuredCall& call, int without, bool& is_known) const;
  Sum sum_of(const Plan& plan, int n_threads, int without) const;
  void add_calls(const Plan& plan, int n_threads, const std::vector<double>* seconds, double times);
  void index();

  std::string machine_;
  std::vector<std::string> sets_;
  std::vector<MeasuredCall> calls_;
  std::vector<double> wholes_;  // seconds of each graph's run
  double whole_over_sum_ = 1;
  std::vector<double> ratios_[2];  // without loops, with
  std::map<std::string, std::vector<size_t>> by_kind_, by_kernel_;
};

}  // namespace tegula::planner
