#include "tegula/runtime/measured_target.h"

#include <gtest/gtest.h>

#include "tegula/cost/price.h"

namespace tegula {
namespace {

TEST(MeasuredTarget, IsThisMachineWithItsRates) {
  Rank rank(2);
  const auto t = measured_target(rank);
  ASSERT_TRUE(t.ok()) << t.error().to_string();
  EXPECT_TRUE(t->runs_on(Target::this_cpu(2)).ok());
  EXPECT_EQ(t->n_threads, 2);
  // Any machine that runs this does between a gigaflop and a petaflop a second.
  for (const double rate : {t->f32_flops_per_s, t->bf16_flops_per_s}) {
    EXPECT_GT(rate, 1e9);
    EXPECT_LT(rate, 1e15);
  }
  EXPECT_GT(t->bytes_per_s, 1e8);
  for (const double share : {t->flops_efficiency, t->bytes_efficiency}) {
    EXPECT_GT(share, 0);
    EXPECT_LE(share, 1);
  }
  // Priced by them, twice the work takes twice the time.
  EXPECT_DOUBLE_EQ(price(*t, DType::kF32, 2e12, 0), 2 * price(*t, DType::kF32, 1e12, 0));
}

}  // namespace
}  // namespace tegula
