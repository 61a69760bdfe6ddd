// How products of e4m3 are summed where a naive kernel is the measure (tensor cores keep 13 bits).
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tegula/ops/common/attention_call.h"

namespace tegula {
namespace {

// n products of 2^8, then one of n · 2^(8 - below).
double sum(int n, int below) {
  std::vector<double> q(static_cast<size_t>(n), 16), k(q);
  q.push_back(1), k.push_back(n * 256.0 * std::ldexp(1.0, -below));
  return sum_of_e4m3_products(q, k);
}

TEST(E4m3Products, KeepThirteenBits) {
  EXPECT_EQ(sum(1, 13), 256 + std::ldexp(256.0, -13));
  EXPECT_EQ(sum(1, 14), 256);
  EXPECT_EQ(sum(16, 13), 4096 + std::ldexp(4096.0, -13));
  EXPECT_EQ(sum(16, 14), 4096);
}

TEST(E4m3Products, AreExactWhereNothingIsCut) {
  std::vector<double> q, k;
  double exact = 0;
  for (int e = 0; e < 70; ++e) {
    q.push_back(e % 5 - 2), k.push_back(e % 7 - 3);
    exact += q.back() * k.back();
  }
  EXPECT_EQ(sum_of_e4m3_products(q, k), exact);
  EXPECT_EQ(sum_of_e4m3_products({}, {}), 0);
  EXPECT_EQ(sum_of_e4m3_products(std::vector<double>(64, 0.0), std::vector<double>(64, 1.0)), 0);
}

}  // namespace
}  // namespace tegula
