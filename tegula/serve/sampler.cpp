#include "tegula/serve/sampler.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "tegula/base/algorithm.h"
#include "tegula/base/philox.h"

namespace tegula {

namespace {

std::vector<float> adjusted(std::span<const float> logits, const SamplerConfig& config,
                            const TokensBefore& before) {
  std::vector<float> all(logits.begin(), logits.end());
  const auto at = [&](int32_t token) -> float* {
    return token >= 0 && static_cast<size_t>(token) < all.size() ? &all[token] : nullptr;
  };
  for (const auto& [token, bias] : config.bias)
    if (float* x = at(token)) *x += static_cast<float>(bias);
  const auto penalty = static_cast<float>(config.repetition_penalty);
  for (const auto& [token, n] : before.counts()) {
    float* x = at(token);
    if (x == nullptr) continue;
    if (penalty != 1) *x = *x < 0 ? *x * penalty : *x / penalty;
    if (n > 0)
      *x -= static_cast<float>(static_cast<double>(n) * config.frequency_penalty +
                               config.presence_penalty);
  }
  return all;
}

// Tokens in the order of their logits, the likeliest first, of which some are kept.
class Ranking {
 public:
  Ranking(std::span<const float> logits, const SamplerConfig& config)
      : logits_(logits), config_(config), order_(logits.size()) {
    std::iota(order_.begin(), order_.end(), 0);
    top_ = at(ranked(0));
    keep();
  }

  // A number compared with NaN would be in no order at all.
  static float at(std::span<const float> logits, int32_t token) {
    const float x = logits[token];
    return std::isnan(x) ? -std::numeric_limits<float>::infinity() : x;
  }

  int32_t draw(double uniform) {
    double u = uniform * kept_;
    const size_t n = count();
    for (size_t i = 0; i + 1 < n; ++i)
      if ((u -= weight(token(i))) < 0) return token(i);
    return token(n - 1);
  }
  size_t count() const { return typical_.empty() ? n_ : typical_.size(); }
  // The i-th of those that are kept.
  int32_t token(size_t i) { return typical_.empty() ? ranked(i) : typical_[i]; }
  double probability(size_t i) { return weight(token(i)) / kept_; }

 private:
  float at(int32_t token) const { return at(logits_, token); }
  double weight(int32_t token) const {
    const double x = at(token);
    return x == top_ ? 1 : std::exp((x - top_) / config_.temperature);  // infinities, too
  }
  // The token of the i-th largest logit. Most draws end among the first, so few are sorted.
  int32_t ranked(size_t i) {
    const auto greater = [&](int32_t a, int32_t b) {
      const float x = at(a), y = at(b);
      return x != y ? x > y : a < b;
    };
    while (i >= n_sorted_) {
      const size_t next = std::min(order_.size(), std::max<size_t>(64, 8 * n_sorted_));
      const auto begin = order_.begin();
      std::partial_sort(begin + static_cast<std::ptrdiff_t>(n_sorted_),
                        begin + static_cast<std::ptrdiff_t>(next), order_.end(), greater);
      n_sorted_ = next;
    }
    return order_[i];
  }

  void keep() {
    n_ = order_.size();
    if (config_.top_k > 0) n_ = std::min(n_, static_cast<size_t>(config_.top_k));
    double total = 0;
    for (size_t i = 0; i < n_; ++i)
      total += weight(n_ < order_.size() ? ranked(i) : static_cast<int32_t>(i));
    kept_ = total;
    if (config_.top_p < 1) {
      kept_ = 0;
      for (size_t i = 0; i < n_; ++i)
        if ((kept_ += weight(ranked(i))) >= config_.top_p * total) n_ = i + 1;
    }
    if (config_.min_p > 0) {
      kept_ = 1;
      size_t n = 1;
      for (double w = 0; n < n_ && (w = weight(ranked(n))) >= config_.min_p; ++n) kept_ += w;
      n_ = n;
    }
    if (config_.typical_p < 1) keep_typical();
  }

  // Those whose information is nearest to the entropy; they stay in their order.
  void keep_typical() {
    const double kept = kept_;
    double entropy = 0;
    std::vector<std::pair<double, size_t>> far;  // from the entropy
    for (size_t i = 0; i < n_; ++i)
      if (const double p = weight(ranked(i)) / kept; p > 0) entropy -= p * std::log(p);
    for (size_t i = 0; i < n_; ++i)
      if (const double p = weight(ranked(i)) / kept; p > 0)
        far.emplace_back(std::fabs(-std::log(p) - entropy), i);
    std::sort(far.begin(), far.end());
    double reached = 0;
    size_t n = 0;
    while (n < far.size() && reached < config_.typical_p)
      reached += weight(ranked(far[n++].second)) / kept;
    far.resize(std::max<size_t>(n, 1));
    std::sort(far.begin(), far.end(),
              [](const auto& a, const auto& b) { return a.second < b.second; });
    kept_ = 0;
    for (const auto& [distance, i] : far)
      typical_.push_back(ranked(i)), kept_ += weight(typical_.back());
  }

  std::span<const float> logits_;
  const SamplerConfig& config_;
  std::vector<int32_t> order_, typical_;
  size_t n_sorted_ = 0, n_ = 0;
  double top_ = 0, kept_ = 0;
};

}  // namespace

void TokensBefore::follow(std::span<const int32_t> all, size_t n_prompt) {
  for (; n_counted_ < all.size(); ++n_counted_)
    counts_[all[n_counted_]] += n_counted_ >= n_prompt ? 1 : 0;
}

int32_t sample(std::span<const float> logits, const SamplerConfig& config, uint64_t position,
               const TokensBefore& before) {
  std::vector<float> changed;
  if (config.adjusts()) logits = changed = adjusted(logits, config, before);
  if (config.temperature > 0)
    return Ranking(logits, config).draw(philox_uniform(config.seed, 0x73616d70, position));
  // A NaN is larger than nothing.
  int32_t best = 0;
  float top = Ranking::at(logits, 0);
  for (size_t i = 1; i < logits.size(); ++i)
    if (logits[i] > top) top = logits[i], best = static_cast<int32_t>(i);
  return best;
}

std::vector<std::pair<int32_t, double>> distribution(std::span<const float> logits,
                                                     const SamplerConfig& config,
                                                     const TokensBefore& before) {
  std::vector<float> changed;
  if (config.adjusts()) logits = changed = adjusted(logits, config, before);
  Ranking ranking(logits, config);
  std::vector<std::pair<int32_t, double>> all;
  for (size_t i = 0; i < ranking.count(); ++i)
    all.emplace_back(ranking.token(i), ranking.probability(i));
  return all;
}

}  // namespace tegula
