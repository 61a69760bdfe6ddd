#include "tegula/serve/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace tegula {
namespace {

const std::vector<float> kLogits = {1.0f, 3.0f, 2.0f, -1.0f, 3.0f};

// How often each token comes in n draws.
std::vector<int> histogram(const SamplerConfig& c, int n) {
  std::vector<int> counts(kLogits.size());
  for (int i = 0; i < n; ++i)
    ++counts[static_cast<size_t>(sample(kLogits, c, static_cast<uint64_t>(i)))];
  return counts;
}

TEST(Sampler, GreedyTakesTheFirstOfTheLargest) {
  for (uint64_t i = 0; i < 9; ++i) EXPECT_EQ(sample(kLogits, {.temperature = 0, .seed = i}, i), 1);
}

// Pearson's statistic of 4 degrees of freedom exceeds 18.5 once in 1000 seeds; this seed is fixed.
TEST(Sampler, DrawsFromTheSoftmaxAtItsTemperature) {
  const int n = 20000;
  for (double temperature : {0.5, 1.0, 2.0}) {
    const auto counts = histogram({.temperature = temperature}, n);
    double total = 0, chi = 0;
    for (float x : kLogits) total += std::exp(x / temperature);
    for (size_t i = 0; i < kLogits.size(); ++i) {
      const double expected = n * std::exp(kLogits[i] / temperature) / total;
      chi += std::pow(counts[i] - expected, 2) / expected;
    }
    EXPECT_LT(chi, 18.5) << temperature;
  }
}

TEST(Sampler, TopKAndTopPLeaveOutTheRest) {
  auto kept = [](const SamplerConfig& c) {
    std::vector<bool> kept;
    for (int n : histogram(c, 4000)) kept.push_back(n > 0);
    return kept;
  };
  EXPECT_EQ(kept({.top_k = 3}), (std::vector<bool>{false, true, true, false, true}));
  EXPECT_EQ(kept({.top_k = 1}), (std::vector<bool>{false, true, false, false, false}));
  // Probabilities: 0.054, 0.397, 0.146, 0.007, 0.397. The set is the smallest that reaches p.
  EXPECT_EQ(kept({.top_p = 0.39}), (std::vector<bool>{false, true, false, false, false}));
  EXPECT_EQ(kept({.top_p = 0.5}), (std::vector<bool>{false, true, false, false, true}));
  EXPECT_EQ(kept({.top_p = 0.9}), (std::vector<bool>{false, true, true, false, true}));
  EXPECT_EQ(kept({.top_p = 1.0}), (std::vector<bool>(5, true)));
}

TEST(Sampler, DependsOnSeedAndPositionAlone) {
  const SamplerConfig c{.temperature = 2, .seed = 5};
  std::vector<int32_t> forward, backward(50);
  for (uint64_t i = 0; i < 50; ++i) forward.push_back(sample(kLogits, c, i));
  for (uint64_t i = 50; i-- > 0;) backward[i] = sample(kLogits, c, i);
  EXPECT_EQ(forward, backward);
  int differ = 0;
  for (uint64_t i = 0; i < 50; ++i)
    differ += sample(kLogits, {.temperature = 2, .seed = 6}, i) != forward[i];
  EXPECT_GT(differ, 10);
}

}  // namespace
}  // namespace tegula
