#include "tegula/serve/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "tegula/base/philox.h"

namespace tegula {

int32_t sample(std::span<const float> logits, const SamplerConfig& config, uint64_t position) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  auto greater = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  if (config.temperature <= 0) return *std::min_element(order.begin(), order.end(), greater);
  std::sort(order.begin(), order.end(), greater);
  size_t n = order.size();
  if (config.top_k > 0) n = std::min(n, static_cast<size_t>(config.top_k));
  std::vector<double> p(n);
  double total = 0;
  const double top = logits[static_cast<size_t>(order[0])];
  for (size_t i = 0; i < n; ++i)
    total += p[i] = std::exp((logits[static_cast<size_t>(order[i])] - top) / config.temperature);
  double kept = 0;
  for (size_t i = 0; i < n; ++i) {
    kept += p[i];
    if (kept >= config.top_p * total) n = i + 1;
  }
  double u = philox_uniform(config.seed, 0x73616d70, position) * kept;
  for (size_t i = 0; i + 1 < n; ++i)
    if ((u -= p[i]) < 0) return order[i];
  return order[n - 1];
}

}  // namespace tegula
