#include "tegula/base/philox.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tegula {
namespace {

using Counter = std::array<uint32_t, 4>;

// Known answers published with the paper's own implementation (philox4x32, 10 rounds).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox4x32({ones, ones, ones, ones}, {ones, ones}),
            (Counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, BitsAreTheWordsOfTheBlocks) {
  const uint64_t seed = 0x0123456789abcdef, stream = 0xfedcba9876543210;
  for (const uint64_t block : {uint64_t{0}, uint64_t{1}, uint64_t{0x1234567890}}) {
    const Counter words = philox4x32(
        {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0x76543210, 0xfedcba98},
        {0x89abcdef, 0x01234567});
    for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(philox_bits(seed, stream, 4 * block + i), words[i]);
  }
}

TEST(Philox, UniformIsInRangeWithTheRightMoments) {
  double sum = 0, squares = 0;
  const int n = 100000;
  for (int i = 0; i < n; ++i) {
    const double u = philox_uniform(7, 3, static_cast<uint64_t>(i));
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u, squares += u * u;
  }
  // Five standard errors of the mean of u (sd 1/√12) and of u² (sd √(4/45)).
  EXPECT_NEAR(sum / n, 0.5, 5 * 0.28868 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1.0 / 3, 5 * 0.29814 / std::sqrt(n));
}

TEST(Philox, StreamsAndSeedsDiffer) {
  EXPECT_NE(philox_bits(1, 0, 0), philox_bits(0, 1, 0));
  EXPECT_NE(philox_bits(1, 0, 0), philox_bits(1ull << 32, 0, 0));
  EXPECT_NE(philox_bits(0, 0, 4), philox_bits(0, 0, 0));
}

}  // namespace
}  // namespace tegula
