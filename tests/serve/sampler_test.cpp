#include "tegula/serve/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
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

// A number that is not finite has a place in the order: a NaN is never drawn beside a number.
TEST(Sampler, WhatIsNotFiniteIsOrdered) {
  const float kInf = INFINITY;
  for (const auto& [logits, allowed] :
       {std::pair<std::vector<float>, std::vector<int>>{{NAN, 1, NAN, 2, NAN}, {1, 3}},
        {{1, NAN, 1, NAN}, {0, 2}},
        {{1, kInf, NAN, kInf, 2}, {1, 3}},
        {{-kInf, -kInf, 0}, {2}},
        {std::vector<float>(300, NAN), {}},
        {std::vector<float>(300, -kInf), {}}})
    for (const SamplerConfig& c :
         {SamplerConfig{.temperature = 0}, SamplerConfig{.temperature = NAN},
          SamplerConfig{.temperature = 1}, SamplerConfig{.temperature = 2, .top_k = 3},
          SamplerConfig{.temperature = 2, .top_p = 0.9}})
      for (uint64_t i = 0; i < 50; ++i) {
        const int32_t token = sample(logits, c, i);
        ASSERT_TRUE(token >= 0 && token < static_cast<int32_t>(logits.size()));
        const bool is_allowed =
            allowed.empty() || std::find(allowed.begin(), allowed.end(), token) != allowed.end();
        EXPECT_TRUE(is_allowed) << token << " at " << c.temperature;
      }
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

// The distribution that a configuration asks for, from its words: softmax at the temperature; of
// that the top_k likeliest, first come first of equals; of those, renormalised, the fewest
// likeliest that together reach top_p; renormalised.
std::vector<double> asked_for(const std::vector<float>& logits, const SamplerConfig& c) {
  std::vector<size_t> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  if (c.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(c.top_k)));
  double total = 0;
  for (size_t i : order) total += std::exp(logits[i] / c.temperature);
  std::vector<double> p(logits.size());
  double reached = 0;
  for (size_t i : order) {
    if (reached / total >= c.top_p) break;
    reached += p[i] = std::exp(logits[i] / c.temperature);
  }
  for (double& x : p) x /= reached;
  return p;
}

// Pearson's statistic against the exact distribution, for each filter alone, in pairs and all. With
// k - 1 degrees of freedom it exceeds k - 1 + 6 √(2 (k - 1)) less than once in 10^4 draws of a
// seed; the seed is fixed.
TEST(Sampler, DrawsFromTheExactDistributionOfItsFilters) {
  const std::vector<float> logits = {0.3f, 2.0f, -1.0f, 1.2f, 0.9f, 0.31f, -0.5f, 1.7f, 1.1f};
  const int n = 30000;
  for (double temperature : {0.7, 1.0, 1.6})
    for (int top_k : {0, 2, 4, 7})
      for (double top_p : {1.0, 0.95, 0.8, 0.45}) {
        const SamplerConfig c{
            .temperature = temperature, .top_k = top_k, .top_p = top_p, .seed = 11};
        const std::vector<double> p = asked_for(logits, c);
        std::vector<int> counts(logits.size());
        for (int i = 0; i < n; ++i)
          ++counts[static_cast<size_t>(sample(logits, c, static_cast<uint64_t>(i)))];
        double chi = 0;
        int kept = 0;
        SCOPED_TRACE(testing::Message() << temperature << " " << top_k << " " << top_p);
        for (size_t i = 0; i < p.size(); ++i) {
          if (p[i] == 0) {
            EXPECT_EQ(counts[i], 0) << i;
            continue;
          }
          ++kept;
          chi += std::pow(counts[i] - n * p[i], 2) / (n * p[i]);
        }
        const double freedom = kept - 1;
        EXPECT_LE(chi, freedom + 6 * std::sqrt(2 * freedom));
      }
}

// Exactly at the edge: of probabilities 1/2, 1/4, 1/8, 1/8 the first reaches 0.5, and two 0.75; of
// four equals the first come are kept.
TEST(Sampler, TiesAtTheEdgeOfAFilter) {
  const auto kept = [](const std::vector<float>& logits, const SamplerConfig& c) {
    std::vector<int> kept(logits.size());
    for (uint64_t i = 0; i < 2000; ++i) kept[static_cast<size_t>(sample(logits, c, i))] = 1;
    return kept;
  };
  using Kept = std::vector<int>;
  // exp(0) and products of it by powers of two: their sums are exact.
  const std::vector<float> equal = {0, 0, 0, 0};
  EXPECT_EQ(kept(equal, {.top_p = 0.5}), (Kept{1, 1, 0, 0}));
  EXPECT_EQ(kept(equal, {.top_p = 0.25}), (Kept{1, 0, 0, 0}));
  EXPECT_EQ(kept(equal, {.top_p = 0.75}), (Kept{1, 1, 1, 0}));
  EXPECT_EQ(kept(equal, {.top_k = 3}), (Kept{1, 1, 1, 0}));
  EXPECT_EQ(kept(equal, {.top_k = 2, .top_p = 0.5}), (Kept{1, 0, 0, 0}));
  EXPECT_EQ(kept({-1, 0, 0, -1, 0}, {.top_k = 2}), (Kept{0, 1, 1, 0, 0}));
}

std::vector<int32_t> kept_tokens(const std::vector<float>& logits, const SamplerConfig& c,
                                 const TokensBefore& before = {}) {
  std::vector<int32_t> kept;
  double total = 0;
  for (const auto& [token, p] : distribution(logits, c, before)) {
    kept.push_back(token);
    total += p;
  }
  EXPECT_NEAR(total, 1, 1e-12);
  std::sort(kept.begin(), kept.end());
  return kept;
}
using Tokens = std::vector<int32_t>;

// Probabilities 1/2, 1/4, 1/8, 1/8.
const std::vector<float> kHalves = {std::log(4.0f), std::log(2.0f), 0, 0};

TEST(Sampler, MinPKeepsWhatIsNearTheLikeliest) {
  EXPECT_EQ(kept_tokens(kHalves, {.min_p = 1}), (Tokens{0}));
  EXPECT_EQ(kept_tokens(kHalves, {.min_p = 0.49}), (Tokens{0, 1}));
  EXPECT_EQ(kept_tokens(kHalves, {.min_p = 0.51}), (Tokens{0}));
  EXPECT_EQ(kept_tokens(kHalves, {.min_p = 0.24}), (Tokens{0, 1, 2, 3}));
  // At twice the temperature a token has the root of its share.
  EXPECT_EQ(kept_tokens(kHalves, {.temperature = 2, .min_p = 0.7}), (Tokens{0, 1}));
  EXPECT_EQ(kept_tokens(kHalves, {.top_k = 1, .min_p = 0.1}), (Tokens{0}));
}

// The entropy is 1.75 bits; the tokens' information is 1, 2, 3 and 3.
TEST(Sampler, TypicalKeepsWhatIsNearTheEntropy) {
  EXPECT_EQ(kept_tokens(kHalves, {.typical_p = 0.2}), (Tokens{1}));
  EXPECT_EQ(kept_tokens(kHalves, {.typical_p = 0.3}), (Tokens{0, 1}));
  EXPECT_EQ(kept_tokens(kHalves, {.typical_p = 0.8}), (Tokens{0, 1, 2}));
  EXPECT_EQ(kept_tokens(kHalves, {.typical_p = 0.99}), (Tokens{0, 1, 2, 3}));
  EXPECT_EQ(kept_tokens(kHalves, {.typical_p = 0}), (Tokens{1}));
  EXPECT_EQ(kept_tokens({INFINITY, 0, NAN}, {.typical_p = 0.5}), (Tokens{0}));
}

// A text is counted as it grows, each token once.
TEST(Sampler, TokensAreCountedOnce) {
  Tokens text = {3, 1, 3, 7, 1, 1, 9, 3, 3, 2};
  TokensBefore before;
  for (size_t n = 0; n <= text.size(); n += 2) {
    before.follow(std::span(text).first(n), 3);
    EXPECT_EQ(before.counts(), TokensBefore(std::span(text).first(n), 3).counts());
  }
  EXPECT_EQ(before.counts(),
            (std::unordered_map<int32_t, int64_t>{{3, 2}, {1, 2}, {7, 1}, {9, 1}, {2, 1}}));
  const auto counted = before.counts();
  for (int32_t& token : text) token = 4;  // nobody reads them again
  before.follow(text, 3);
  EXPECT_EQ(before.counts(), counted);
}

TEST(Sampler, PenaltiesAndBiasesChangeLogits) {
  const std::vector<float> logits = {2, -2, 1, 0};
  const Tokens text = {0, 1, 2, 2};
  const TokensBefore before{text, 2};  // 0 and 1 are the prompt's
  const auto greedy = [&](SamplerConfig c) {
    c.temperature = 0;
    return sample(logits, c, 0, before);
  };
  EXPECT_EQ(greedy({}), 0);
  EXPECT_EQ(greedy({.repetition_penalty = 1.9}), 0);  // 1.05, -3.8, .53
  EXPECT_EQ(greedy({.repetition_penalty = 0.4}), 0);  // 5, -.8, 2.5
  EXPECT_EQ(greedy({.bias = {{3, 2.5}}}), 3);
  EXPECT_EQ(greedy({.repetition_penalty = 2, .bias = {{0, -1.5}}}), 2);
  EXPECT_EQ(greedy({.frequency_penalty = -0.4}), 0);  // 2 has .8 more
  EXPECT_EQ(greedy({.frequency_penalty = -0.6}), 2);  // 1.2 more
  EXPECT_EQ(greedy({.presence_penalty = -0.9}), 0);
  EXPECT_EQ(greedy({.presence_penalty = -1.1}), 2);
  // Only the text's tokens are penalised, but for repetition.
  const auto p = [&](const SamplerConfig& c, int32_t token) {
    for (const auto& [t, x] : distribution(logits, c, before))
      if (t == token) return x;
    return 0.0;
  };
  EXPECT_NEAR(p({.frequency_penalty = 0.5}, 0) / p({.frequency_penalty = 0.5}, 2), std::exp(2.0),
              1e-6);
  EXPECT_NEAR(p({.presence_penalty = 0.5}, 0) / p({.presence_penalty = 0.5}, 2), std::exp(1.5),
              1e-6);
  EXPECT_NEAR(p({.repetition_penalty = 2}, 0) / p({.repetition_penalty = 2}, 1), std::exp(5.0),
              1e-4);
  // Tokens beyond the logits are nobody's.
  const Tokens far = {99, -1};
  EXPECT_EQ(
      sample(logits, {.temperature = 0, .repetition_penalty = 2, .bias = {{99, 5}}}, 0, {far, 0}),
      0);
}

// Whatever is left out, what is kept is what sample() draws, at its rates.
TEST(Sampler, DrawsFromTheDistributionThatItSays) {
  const std::vector<float> logits = {0.3f, 2.0f, -1.0f, 1.2f, 0.9f, 0.31f, -0.5f, 1.7f, 1.1f};
  const int n = 20000;
  for (const SamplerConfig& c : {SamplerConfig{.seed = 3, .min_p = 0.3},
                                 {.seed = 3, .typical_p = 0.6},
                                 {.temperature = 1.5,
                                 .top_k = 6,
                                 .top_p = 0.9,
                                 .seed = 4,
                                 .min_p = 0.2,
                                 .typical_p = 0.8}}) {
    std::vector<int> counts(logits.size());
    for (int i = 0; i < n; ++i)
      ++counts[static_cast<size_t>(sample(logits, c, static_cast<uint64_t>(i)))];
    double chi = 0;
    const auto all = distribution(logits, c);
    for (const auto& [token, p] : all) {
      const double expected = n * p, got = counts[static_cast<size_t>(token)];
      chi += std::pow(got - expected, 2) / expected;
      counts[static_cast<size_t>(token)] = 0;
    }
    const double freedom = static_cast<double>(all.size()) - 1;
    EXPECT_LE(chi, freedom + 6 * std::sqrt(2 * freedom));
    EXPECT_EQ(std::count(counts.begin(), counts.end(), 0), static_cast<int>(counts.size()));
  }
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
