#include "tegula/serve/sampler.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "tegula/base/algorithm.h"
#include "tegula/base/philox.h"

namespace tegula {

int32_t sample(std::span<const float> logits, const SamplerConfig& config, uint64_t position) {
  // A number compared with NaN would be in no order at all.
  const auto at = [&](int32_t token) {
    const float x = logits[static_cast<size_t>(token)];
    return std::isnan(x) ? -std::numeric_limits<float>::infinity() : x;
  };
  if (!(config.temperature > 0)) {
    int32_t best = 0;
    for (int32_t i = 1; i < static_cast<int32_t>(logits.size()); ++i)
      if (at(i) > at(best)) best = i;
    return best;
  }
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto greater = [&](int32_t a, int32_t b) {
    const float x = at(a), y = at(b);
    return x != y ? x > y : a < b;
  };
  // The token of the i-th largest logit. Most draws end among the first, so few are sorted.
  size_t n_sorted = 0;
  const auto ranked = [&](size_t i) {
    while (i >= n_sorted) {
      const size_t next = std::min(order.size(), std::max<size_t>(64, 8 * n_sorted));
      const auto begin = order.begin();
      std::partial_sort(begin + static_cast<std::ptrdiff_t>(n_sorted),
                        begin + static_cast<std::ptrdiff_t>(next), order.end(), greater);
      n_sorted = next;
    }
    return order[i];
  };
  const double top = at(ranked(0));
  const auto weight = [&](int32_t token) {
    const double x = at(token);
    return x == top ? 1 : std::exp((x - top) / config.temperature);  // infinities, too
  };
  size_t n = order.size();
  if (config.top_k > 0) n = std::min(n, static_cast<size_t>(config.top_k));
  double total = 0;
  for (size_t i = 0; i < n; ++i)
    total += weight(n < order.size() ? ranked(i) : static_cast<int32_t>(i));
  double kept = total;
  if (config.top_p < 1) {
    kept = 0;
    for (size_t i = 0; i < n; ++i)
      if ((kept += weight(ranked(i))) >= config.top_p * total) n = i + 1;
  }
  double u = philox_uniform(config.seed, 0x73616d70, position) * kept;
  for (size_t i = 0; i + 1 < n; ++i)
    if ((u -= weight(ranked(i))) < 0) return ranked(i);
  return ranked(n - 1);
}

}  // namespace tegula
