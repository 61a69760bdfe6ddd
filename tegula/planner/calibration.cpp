#include "tegula/planner/calibration.h"

#include <cmath>

#include "tegula/base/algorithm.h"
#include "tegula/planner/local_fit.h"

namespace tegula::planner {

namespace {

// Fewer calls of a kind say less than all those of its kernel.
constexpr size_t kLeastCalls = 3;

double median(std::vector<double> v) {
  if (v.empty()) return 1;
  std::sort(v.begin(), v.end());
  const size_t n = v.size();
  return (v[(n - 1) / 2] + v[n / 2]) / 2;
}

// How often a step's regions run, by its FLOPs.
double runs_of(const Step& s) {
  int64_t flops = 0;
  for (const auto& region : s.regions) flops += region->flops();
  return flops > 0 ? static_cast<double>(s.flops) / static_cast<double>(flops) : 1;
}

bool has_loops(const Plan& plan) {
  return std::any_of(plan.steps.begin(), plan.steps.end(),
                     [](const Step& s) { return !s.regions.empty(); });
}

}  // namespace

bool Calibration::has(const std::string& what) const {
  return std::find(sets_.begin(), sets_.end(), what) != sets_.end();
}

void Calibration::add_calls(const Plan& plan, int n_threads, const std::vector<double>* seconds,
                            double times) {
  // Calls of one kind and size are one call, as often as they stand there.
  const size_t first = calls_.size();
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& s = plan.steps[i];
    for (const auto& region : s.regions) add_calls(*region, n_threads, nullptr, times * runs_of(s));
    if (!s.regions.empty()) continue;
    MeasuredCall c = describe(s, n_threads);
    c.seconds = seconds ? std::max((*seconds)[i], 1e-8) : 0;
    c.graph = n_graphs(), c.times = times;
    const auto same = std::find_if(calls_.begin() + static_cast<std::ptrdiff_t>(first),
                                   calls_.end(), [&](const auto& o) {
                                     return o.kind == c.kind && o.extents == c.extents &&
                                            (o.seconds > 0) == (seconds != nullptr);
                                   });
    if (same == calls_.end()) {
      calls_.push_back(std::move(c));
      continue;
    }
    same->seconds = (same->seconds * same->times + c.seconds * times) / (same->times + times);
    same->times += times;
  }
}

void Calibration::add(const Plan& plan, int n_threads, const std::vector<double>& seconds,
                      double whole_s) {
  add_calls(plan, n_threads, &seconds, 1);
  wholes_.push_back(whole_s);
}

void Calibration::index() {
  by_kind_.clear(), by_kernel_.clear();
  for (size_t i = 0; i < calls_.size(); ++i) {
    if (calls_[i].seconds == 0) continue;
    by_kind_[calls_[i].kind].push_back(i);
    by_kernel_[calls_[i].kernel].push_back(i);
  }
}

double Calibration::call_seconds(const MeasuredCall& call, int without, bool& is_known) const {
  std::vector<FitPoint> points;
  const auto fit = [&](std::span<const double> at) {
    return call.nominal_s * std::exp(local_fit(points, at));
  };
  const auto y = [](const MeasuredCall& c) { return std::log(c.seconds / c.nominal_s); };
  is_known = true;
  if (const auto found = by_kind_.find(call.kind); found != by_kind_.end())
    for (const size_t i : found->second)
      if (calls_[i].graph != without && calls_[i].extents.size() == call.extents.size())
        points.push_back({calls_[i].extents, y(calls_[i])});
  if (points.size() >= kLeastCalls) return fit(call.extents);
  is_known = !points.empty();
  points.clear();
  std::vector<double> sizes(calls_.size());
  const auto take = [&](size_t i) {
    sizes[i] = std::log(calls_[i].nominal_s);
    if (calls_[i].graph != without && calls_[i].seconds > 0)
      points.push_back({{&sizes[i], 1}, y(calls_[i])});
  };
  if (const auto found = by_kernel_.find(call.kernel); found != by_kernel_.end())
    for (const size_t i : found->second) take(i);
  if (points.size() < kLeastCalls) {
    points.clear();
    for (size_t i = 0; i < calls_.size(); ++i) take(i);
  }
  if (points.empty()) return call.nominal_s;
  const double at = std::log(call.nominal_s);
  return fit({&at, 1});
}

Calibration::Sum Calibration::sum_of(const Plan& plan, int n_threads, int without) const {
  Sum sum;
  for (const Step& s : plan.steps) {
    for (const auto& region : s.regions) {
      const Sum part = sum_of(*region, n_threads, without);
      sum.seconds += runs_of(s) * part.seconds, sum.unknown += runs_of(s) * part.unknown;
    }
    if (!s.regions.empty()) continue;
    bool is_known = true;
    const double seconds = call_seconds(describe(s, n_threads), without, is_known);
    sum.seconds += seconds;
    if (!is_known) sum.unknown += seconds;
  }
  return sum;
}

void Calibration::finish() {
  index();
  std::vector<double> sums(wholes_.size(), 0), predicted(wholes_.size(), 0), over;
  std::vector<bool> has_loops(wholes_.size(), false);
  for (const MeasuredCall& c : calls_) {
    bool is_known = true;
    const auto g = static_cast<size_t>(c.graph);
    if (c.seconds == 0) has_loops[g] = true;
    sums[g] += c.times * c.seconds;
    predicted[g] += c.times * call_seconds(c, c.graph, is_known);
  }
  for (size_t g = 0; g < wholes_.size(); ++g)
    if (!has_loops[g] && sums[g] > 0) over.push_back(wholes_[g] / sums[g]);
  whole_over_sum_ = median(over);
  for (std::vector<double>& r : ratios_) r.clear();
  for (size_t g = 0; g < wholes_.size(); ++g)
    ratios_[has_loops[g]].push_back(wholes_[g] / (whole_over_sum_ * predicted[g]));
  for (std::vector<double>& r : ratios_) std::sort(r.begin(), r.end());
}

Predicted Calibration::predict(const Plan& plan, int n_threads) const {
  Predicted p;
  if (calls_.empty()) return p;
  const Sum sum = sum_of(plan, n_threads, kNoGraph);
  p.seconds = whole_over_sum_ * sum.seconds;
  p.share_unknown = sum.seconds > 0 ? sum.unknown / sum.seconds : 0;
  p.low = p.high = p.seconds;
  for (const bool loops : {false, true}) {
    const std::vector<double>& ratios = ratios_[loops];
    if (ratios.empty() || (loops && !has_loops(plan))) continue;
    const size_t n = ratios.size();
    const size_t tail = std::min(n - 1, static_cast<size_t>(0.05 * static_cast<double>(n + 1)));
    const size_t low = tail == 0 ? 0 : tail - 1;
    p.low = std::min(p.low, p.seconds * ratios[low]);
    p.high = std::max(p.high, p.seconds * ratios[n - 1 - low]);
  }
  return p;
}

}  // namespace tegula::planner
