// Counts at the edges of double (2^53) and of int64 (2^63).
#include "tegula/base/saturating.h"

#include <gtest/gtest.h>

namespace tegula {
namespace {

constexpr int64_t k53 = int64_t{1} << 53, k62 = int64_t{1} << 62;

TEST(Saturating, CountsAreExactBelow2To63) {
  EXPECT_EQ((Count(k53) + 1).n, k53 + 1);  // the first that a double cannot hold
  EXPECT_EQ((Count(k53 + 1) * 1023).n, 9214364837600035839);
  EXPECT_EQ((Count(k62 - 1) + k62).n, kUncountable);  // 2^63 - 1 stands for what is beyond
  EXPECT_EQ((Count(k62 - 1) * 2).n, kUncountable - 1);
}

TEST(Saturating, CountsStayUncountable) {
  EXPECT_EQ((Count(k62) * 2).n, kUncountable);
  EXPECT_EQ((Count(k62) + k62).n, kUncountable);
  EXPECT_EQ((Count(k62) * k62 * k62 + 1).n, kUncountable);
  EXPECT_EQ((Count(k62) * 4 * 0).n, 0);  // no trips
}

TEST(Saturating, ACounterMayPassTheEnd) {
  EXPECT_EQ(counted_since(INT64_MIN + 5, INT64_MAX - 4), 10);
  EXPECT_EQ(counted_since(k53, 1), k53 - 1);
}

}  // namespace
}  // namespace tegula
