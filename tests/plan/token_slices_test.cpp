// Slices of tokens against all ways to cut them, and the times that they promise against the
// simulator's.
#include "tegula/plan/token_slices.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "tests/plan/schedules.h"

namespace tegula::testing {
namespace {

// A slice reads weights, works on its tokens and attends to those before it.
SliceTimes causal(int n_units, double fixed, double per_unit, double per_pair) {
  SliceTimes t = slice_times(n_units);
  for (int begin = 0; begin < n_units; ++begin)
    for (int end = begin + 1; end <= n_units; ++end)
      t.at(begin, end) = fixed + per_unit * (end - begin) + per_pair * (end * end - begin * begin);
  return t;
}

double pipeline(const SliceTimes& t, const std::vector<int>& lengths, int p, int m) {
  double sum = 0, most = 0;
  int begin = 0;
  for (int l : lengths) {
    const double s = t.at(begin, begin + l);
    sum += s, most = std::max(most, s), begin += l;
  }
  return m * sum + (p - 1) * most;
}

// All 2ⁿ⁻¹ ways; n_slices 0: any number of slices.
double least(const SliceTimes& t, int p, int m, int n_slices) {
  double best = HUGE_VAL;
  for (uint32_t cuts = 0; cuts < 1U << (t.n_units - 1); ++cuts) {
    std::vector<int> lengths{1};
    for (int i = 0; i + 1 < t.n_units; ++i)
      if ((cuts >> i & 1U) != 0)
        lengths.push_back(1);
      else
        ++lengths.back();
    if (n_slices == 0 || lengths.size() == static_cast<size_t>(n_slices))
      best = std::min(best, pipeline(t, lengths, p, m));
  }
  return best;
}

TEST(TokenSlices, NoOtherCutsAreFaster) {
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    const int n = 1 + static_cast<int>(random() % 10), p = 1 + static_cast<int>(random() % 8),
              m = 1 + static_cast<int>(random() % 4);
    SliceTimes t = causal(n, static_cast<double>(random() % 8), 1, .1);
    if (round % 2 == 0)  // times with no order in them
      for (double& s : t.seconds) s = 1 + static_cast<double>(random() % 50);
    for (int slices = 0; slices <= n; ++slices) {
      const auto out = slice_tokens(t, p, m, slices);
      ASSERT_TRUE(out.ok()) << out.error().to_string();
      EXPECT_EQ(std::accumulate(out->lengths.begin(), out->lengths.end(), 0), n);
      if (slices > 0) EXPECT_EQ(out->lengths.size(), static_cast<size_t>(slices));
      EXPECT_NEAR(out->seconds, least(t, p, m, slices), 1e-9);
      EXPECT_NEAR(pipeline(t, out->lengths, p, m), out->seconds, 1e-9);
    }
  }
}

TEST(TokenSlices, LaterSlicesAreShorterAndTheirNumberGrowsWithThePipeline) {
  const SliceTimes t = causal(64, 2, 1, .05);
  size_t last = 0;
  for (int p : {1, 2, 4, 8, 16}) {
    const auto out = slice_tokens(t, p, 1);
    ASSERT_TRUE(out.ok());
    EXPECT_TRUE(std::is_sorted(out->lengths.rbegin(), out->lengths.rend())) << p;
    EXPECT_GE(out->lengths.size(), last);
    last = out->lengths.size();
  }
  EXPECT_EQ(slice_tokens(t, 1, 1)->lengths, std::vector<int>{64});
  EXPECT_GT(last, 6U);
}

// All forward: m·Σ t + (p − 1)·max t is what the simulator takes, if the slowest slice comes first
// or last, or times do not differ; never less than it.
TEST(TokenSlices, ThePipelineTakesAtMostWhatIsPromised) {
  for (int p : {2, 4, 8})
    for (int m : {1, 3}) {
      const SliceTimes t = causal(32, 2, 1, .05);
      const auto out = slice_tokens(t, p, m);
      ASSERT_TRUE(out.ok());
      const auto n_slices = static_cast<int>(out->lengths.size());
      Schedule s = made("tera_pipe", {p, p, m, n_slices});
      const std::vector<StagePrice> stages(static_cast<size_t>(p));
      s.trains = false;
      for (auto& list : s.ranks) list.resize(list.size() / 2);
      const StageChain chain = chain_of(s, stages);
      std::vector<double> seconds;
      for (int stage = 0; stage < p; ++stage)
        for (int i = 0, begin = 0; i < n_slices; begin += out->lengths[static_cast<size_t>(i++)])
          seconds.push_back(t.at(begin, begin + out->lengths[static_cast<size_t>(i)]));
      const auto simulated = simulate(chain.program, s, {.seconds = seconds});
      ASSERT_TRUE(simulated.ok()) << simulated.error().to_string();
      EXPECT_LE(simulated->step_s, out->seconds + 1e-9);
      EXPECT_GE(simulated->step_s, .98 * out->seconds);
      // One slice, as GPipe has it, takes longer.
      EXPECT_LT(out->seconds, pipeline(t, {32}, p, m));
    }
}

TEST(TokenSlices, RefusesWhatCannotBeCut) {
  const SliceTimes t = causal(4, 1, 1, 0);
  const auto many = slice_tokens(t, 2, 1, 5);
  ASSERT_FALSE(many.ok());
  EXPECT_NE(many.error().message.find("4 units of tokens cannot be cut into 5 slices"),
            std::string::npos);
  EXPECT_FALSE(slice_tokens(t, 0, 1).ok());
  SliceTimes none = t;
  none.at(1, 2) = -1;
  EXPECT_FALSE(slice_tokens(none, 2, 1).ok());
}

}  // namespace
}  // namespace tegula::testing
