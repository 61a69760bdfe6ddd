// Times a plan, with what the machine can do measured in between, so that noise of the machine is
// seen by both. The one way to measure: `tegula bench` and the tables in docs/ come from here.
#pragma once

#include <cstdint>
#include <vector>

#include "tegula/runtime/session.h"
#include "tegula/runtime/trace.h"

namespace tegula {

struct MeasureOptions {
  int repeats = 9;        // timed samples; the median counts
  double sample_ms = 10;  // a sample repeats the plan until it lasts so long
  // Sets of inputs, visited in turn: more than the caches hold, so that each run reads memory.
  int64_t cold_bytes = 0;     // 0: warm; else the least the sets hold together
  bool is_sustained = false;  // measure that rate, too: a sample's time each
};

struct Measured {
  double ms_median = 0, ms_min = 0;            // kernel_seconds of runtime/probe.h
  int64_t math_flops = 0, executed_flops = 0;  // counted by the kernels in one run
  RunTrace trace;       // on a device, if by_step was asked for: a run as others are, graph and all
  double first_ms = 0;  // on a device: the first run, with what it compiles or loads
  double peak_flops_per_s = 0;       // f32 multiply-adds, median of bursts between samples
  double sustained_flops_per_s = 0;  // if asked for: sustained_flops between samples, their median
  double read_bytes_per_s = 0;       // cold only: plain reads of memory, the same way
};

// Values for a parameter, by its number: floats uniform in [-1, 1), which repeat after a million;
// integers in [0, below).
void fill_parameter(const Type& type, void* data, uint64_t param, int64_t below);

// Runs the plan on inputs it fills itself: fill_parameter. Of a rank with a device time() is the
// device's, and run() and values() are not for it.
class Measurement {
 public:
  static Result<Measurement> create(std::shared_ptr<const Plan> plan, Rank& rank,
                                    const MeasureOptions& options, int64_t integers_below = 1);
  Result<Measured> run();
  // More runs: seconds of one.
  Result<double> time(int runs = 1);
  // Fills a parameter anew and lets `change`, if it is there, write into it, on the host.
  Status fill(size_t param, void (*change)(const TensorRef& value, uint64_t param) = nullptr);
  // One more run, `times` times, with what each step of the plan took on average.
  Result<std::vector<StepStats>> time_steps(int times);
  // The parameter's value in each set; none: there is no such parameter.
  std::vector<TensorRef> values(std::string_view param) const;
  Session& session() { return *session_; }

 private:
  Status bind(size_t set);
  Status run_once();
  int64_t integers_below_ = 1;
  double probe_reads();
  std::unique_ptr<Session> session_;
  Rank* rank_ = nullptr;
  MeasureOptions options_;
  std::vector<std::vector<Region>> sets_;  // one Region per parameter
  size_t next_set_ = 0;
  Region far_;  // cold only: read by the probe, a part after the other
  int64_t far_at_ = 0;
};

// The same for a plan of a device's kernels, by the device's own clock; nothing is counted there,
// and the peak is 0. Samples begin when the device has done the same work for a tenth of a second:
// what ran before decides its clocks for that long. Errors: a step that has no kernel there.
// `set`: fills a parameter on the host, or leaves that to fill_parameter: false; null: it leaves
// all. `by_step`: also what each step takes, by launches of its own.
struct OfDevice {
  int64_t integers_below = 1;
  bool (*set)(void* context, std::string_view param, const TensorRef& value) = nullptr;
  void* context = nullptr;
  std::vector<StepStats>* by_step = nullptr;
};
// Gives each step that is part of another's launch its share of that one's time.
void share_out(std::vector<StepStats>& stats);
// An error that names a step of the plan that no kernel of the device runs.
Status check_kernels(const Plan& plan, const Device& device);
Result<Measured> measure_on_device(std::shared_ptr<const Plan> plan, Device& device,
                                   const MeasureOptions& options, const OfDevice& more = {});

}  // namespace tegula
