#include "tegula/planner/calibration.h"

#include <algorithm>
#include <cmath>

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

}  // namespace

bool Calibration::has(const std::string& what) const {
  return std::find(sets_.begin(), sets_.end(), what) != sets_.end();
}

void Calibration::add(const Plan& plan, int n_threads, const std::vector<double>& seconds,
                      double whole_s) {
  // Calls of one kind and size are one call, as often as they stand there.
  const size_t first = calls_.size();
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    if (!plan.steps[i].regions.empty()) continue;
    MeasuredCall c = describe(plan.steps[i], n_threads);
    c.seconds = std::max(seconds[i], 1e-8), c.graph = n_graphs();
    const auto same = std::find_if(
        calls_.begin() + static_cast<std::ptrdiff_t>(first), calls_.end(),
        [&](const MeasuredCall& o) { return o.kind == c.kind && o.extents == c.extents; });
    if (same == calls_.end()) {
      calls_.push_back(std::move(c));
      continue;
    }
    same->seconds = (same->seconds * same->times + c.seconds) / (same->times + 1);
    ++same->times;
  }
  wholes_.push_back(whole_s);
}

void Calibration::index() {
  by_kind_.clear(), by_kernel_.clear();
  for (size_t i = 0; i < calls_.size(); ++i) {
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
    if (calls_[i].graph != without) points.push_back({{&sizes[i], 1}, y(calls_[i])});
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
    double regions_s = 0, regions_unknown = 0;
    int64_t regions_flops = 0;
    for (const auto& region : s.regions) {
      const Sum part = sum_of(*region, n_threads, without);
      regions_s += part.seconds, regions_unknown += part.unknown;
      regions_flops += region->flops();
    }
    if (!s.regions.empty()) {
      const double runs =
          regions_flops > 0 ? static_cast<double>(s.flops) / static_cast<double>(regions_flops) : 1;
      sum.seconds += runs * regions_s, sum.unknown += runs * regions_unknown;
      continue;
    }
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
  for (const MeasuredCall& c : calls_) {
    bool is_known = true;
    const auto g = static_cast<size_t>(c.graph);
    sums[g] += c.times * c.seconds;
    predicted[g] += c.times * call_seconds(c, c.graph, is_known);
  }
  for (size_t g = 0; g < wholes_.size(); ++g) over.push_back(wholes_[g] / sums[g]);
  whole_over_sum_ = median(over);
  ratios_.clear();
  for (size_t g = 0; g < wholes_.size(); ++g)
    ratios_.push_back(wholes_[g] / (whole_over_sum_ * predicted[g]));
  std::sort(ratios_.begin(), ratios_.end());
}

Predicted Calibration::predict(const Plan& plan, int n_threads) const {
  Predicted p;
  if (calls_.empty()) return p;
  const Sum sum = sum_of(plan, n_threads, kNoGraph);
  p.seconds = whole_over_sum_ * sum.seconds;
  p.share_unknown = sum.seconds > 0 ? sum.unknown / sum.seconds : 0;
  const size_t n = ratios_.size();
  const size_t tail = std::min(n - 1, static_cast<size_t>(0.05 * static_cast<double>(n + 1)));
  const size_t low = tail == 0 ? 0 : tail - 1;
  p.low = p.seconds * ratios_[low], p.high = p.seconds * ratios_[n - 1 - low];
  return p;
}

}  // namespace tegula::planner
