#include "tegula/runtime/search.h"

#include <cmath>
#include <numeric>

#include "tegula/base/algorithm.h"
#include "tegula/base/philox.h"
#include "tegula/runtime/cost_model.h"

namespace tegula {

namespace {

class Search {
 public:
  Search(const SearchSpace& space, const SearchOptions& options)
      : space_(space), options_(options), model_(space.features), tried_(space.prior.size()) {
    trials_.push_back({0, 1.0});
    tried_[0] = true;  // not the model's: its knobs are 0, whatever the rule makes of them
  }

  std::vector<size_t> first_batch(size_t n) {
    std::vector<size_t> order(tried_.size()), out;
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return space_.prior[a] < space_.prior[b]; });
    for (const size_t p : order)
      if (out.size() < (n + 1) / 2 && !tried_[p]) out.push_back(p), tried_[p] = true;
    std::vector<size_t> rest;
    for (const size_t p : order)
      if (!tried_[p]) rest.push_back(p);
    // One at random out of each of as many equal ranges of the prior's order.
    const size_t spread = n - out.size();
    for (size_t i = 0; i < spread && !rest.empty(); ++i) {
      const size_t low = i * rest.size() / spread, high = (i + 1) * rest.size() / spread;
      if (low == high) continue;
      const double u = philox_uniform(options_.seed, 0, i);
      const size_t at =
          low + std::min(static_cast<size_t>(u * static_cast<double>(high - low)), high - low - 1);
      out.push_back(rest[at]), tried_[rest[at]] = true;
    }
    return out;
  }

  std::vector<size_t> next_batch(size_t n) {
    model_.fit();
    std::vector<size_t> out;
    while (out.size() < n) {
      size_t best = 0;
      double least = HUGE_VAL;
      for (size_t p = 0; p < tried_.size(); ++p) {
        if (tried_[p]) continue;
        const double y = model_.predict(p) - model_.noise() * model_.uncertainty(p);
        if (y < least) least = y, best = p;
      }
      if (least == HUGE_VAL) break;
      out.push_back(best), tried_[best] = true;
      model_.imagine(best);
    }
    return out;
  }

  std::vector<Trial> run(MeasureFn measure, void* context) {
    const size_t most = std::min<size_t>(static_cast<size_t>(options_.trials), tried_.size());
    const auto batch = static_cast<size_t>(options_.batch);
    bool is_first = true;
    while (trials_.size() < most) {
      const size_t n = std::min((is_first ? 2 : 1) * batch, most - trials_.size());
      const auto points = is_first ? first_batch(n) : next_batch(n);
      is_first = false;
      if (points.empty()) break;
      std::vector<double> ratios(points.size());
      if (!measure(context, points, ratios)) break;
      for (size_t i = 0; i < points.size(); ++i) {
        trials_.push_back({points[i], ratios[i]});
        model_.add(points[i], std::log(ratios[i]));
      }
    }
    std::stable_sort(trials_.begin(), trials_.end(),
                     [](const Trial& a, const Trial& b) { return a.ratio < b.ratio; });
    return trials_;
  }

 private:
  const SearchSpace& space_;
  const SearchOptions& options_;
  CostModel model_;
  std::vector<bool> tried_;
  std::vector<Trial> trials_;
};

}  // namespace

std::vector<Trial> search(const SearchSpace& space, const SearchOptions& options, MeasureFn measure,
                          void* context) {
  return Search(space, options).run(measure, context);
}

std::vector<double> quadratic_features(std::span<const double> knobs,
                                       std::span<const double> terms) {
  std::vector<double> log_knob, out;
  for (const double k : knobs) log_knob.push_back(std::log2(1 + k));
  for (size_t i = 0; i < log_knob.size(); ++i) {
    out.push_back(log_knob[i]);
    for (size_t j = i; j < log_knob.size(); ++j) out.push_back(log_knob[i] * log_knob[j]);
  }
  for (const double t : terms) out.push_back(std::log2(1 + t));
  return out;
}

}  // namespace tegula
