// Longest paths beside the simulator, also where a long list is followed only for a beginning.
#include "tegula/planner/turns_clock.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/plan/schedules.h"

namespace tegula::planner {
namespace {

TEST(TurnsClock, IsTheSimulatorForAnyTimes) {
  std::mt19937 bits(5);
  const auto any = [&](double low, double high) {
    return low + (high - low) * static_cast<double>(bits()) / 4294967296.0;
  };
  TurnsClock clock;
  double worst = 0;
  int n = 0;
  for (const Turns turns : {Turns::kZeroBubbleV, Turns::kChimera, Turns::kDualPipe})
    for (const int p : {2, 4, 6, 10})
      for (const int m : {2 * p, 4 * p + 2, 9 * p + 2, 20 * p})
        for (int i = 0; i < 24; ++i) {
          const testing::Times t{1, any(0.5, 4), any(0.2, 1.5)};
          const double together = turns == Turns::kDualPipe ? any(0.6, 1) : 1;
          const std::string_view name = turns_name(turns);
          const Schedule s = testing::made(name, testing::shape_of(name, p, m));
          const double want = testing::run(s, t, together).step_s;
          const auto got = clock.seconds(turns, p, m, {t.f, t.b, t.w, together});
          ASSERT_TRUE(got.ok()) << got.error().message;
          worst = std::max(worst, std::abs(*got / want - 1)), ++n;
          EXPECT_NEAR(*got, want, 1e-9 * want)
              << name << " " << p << " ranks, " << m << ": " << t.f << " " << t.b << " " << t.w;
        }
  std::printf("%d lists, the furthest off by %g\n", n, worst);
}

TEST(TurnsClock, RefusesWhatTheScheduleDoes) {
  TurnsClock clock;
  EXPECT_FALSE(clock.seconds(Turns::kChimera, 3, 4, {1, 1, 1}).ok());
  EXPECT_FALSE(clock.seconds(Turns::kDualPipe, 4, 6, {1, 1, 1}).ok());
}

}  // namespace
}  // namespace tegula::planner
