#include "tegula/base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace tegula {
namespace {

// The value of a bit pattern by the definition of IEEE 754 binary interchange formats.
double value_of(uint32_t bits, int exponent_bits, int mantissa_bits) {
  const double sign = bits >> (exponent_bits + mantissa_bits) ? -1 : 1;
  const int max_exponent = (1 << exponent_bits) - 1;
  const int e = static_cast<int>(bits >> mantissa_bits) & max_exponent;
  const double m = static_cast<double>(bits & ((1u << mantissa_bits) - 1));
  const int bias = max_exponent / 2;
  if (e == max_exponent)
    return m != 0 ? std::numeric_limits<double>::quiet_NaN()
                  : sign * std::numeric_limits<double>::infinity();
  if (e == 0) return sign * std::ldexp(m, 1 - bias - mantissa_bits);
  return sign * std::ldexp(m + std::ldexp(1, mantissa_bits), e - bias - mantissa_bits);
}

template <class H>
struct Format;
template <>
struct Format<f16> {
  static double value(uint16_t bits) { return value_of(bits, 5, 10); }
  static constexpr uint16_t kInf = 0x7c00;
};
template <>
struct Format<bf16> {
  static double value(uint16_t bits) { return value_of(bits, 8, 7); }
  static constexpr uint16_t kInf = 0x7f80;
};

template <class H>
class HalfTest : public ::testing::Test {};
using Formats = ::testing::Types<f16, bf16>;
TYPED_TEST_SUITE(HalfTest, Formats);

TYPED_TEST(HalfTest, EveryPatternWidensToItsValueAndBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    TypeParam h;
    h.bits = static_cast<uint16_t>(bits);
    const double want = Format<TypeParam>::value(h.bits);
    const float got = static_cast<float>(h);
    const TypeParam back(got);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(got)) << bits;
      ASSERT_TRUE(std::isnan(Format<TypeParam>::value(back.bits))) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(got), want) << bits;
      ASSERT_EQ(std::signbit(got), std::signbit(want)) << bits;
      ASSERT_EQ(back.bits, h.bits);
    }
  }
}

// Between every two neighbours: below the midpoint rounds down, above it up, and the midpoint to
// the even one; past the largest finite value the "neighbour" is what would be the next power.
TYPED_TEST(HalfTest, RoundsToNearestEvenAroundEveryMidpoint) {
  using F = Format<TypeParam>;
  for (uint16_t lo = 0; lo < F::kInf; ++lo) {
    const uint16_t hi = static_cast<uint16_t>(lo + 1);
    const double below = F::value(lo);
    const double above =
        hi == F::kInf ? 2 * F::value(lo) - F::value(static_cast<uint16_t>(lo - 1)) : F::value(hi);
    const float middle = static_cast<float>((below + above) / 2);
    ASSERT_EQ(static_cast<double>(middle), (below + above) / 2);  // exact in f32
    const uint16_t even = lo % 2 == 0 ? lo : hi;
    for (const float sign : {1.0f, -1.0f}) {
      const uint16_t s = sign < 0 ? 0x8000 : 0;
      ASSERT_EQ(TypeParam(sign * middle).bits, even | s);
      ASSERT_EQ(TypeParam(sign * std::nextafter(middle, 0.0f)).bits, lo | s);
      ASSERT_EQ(TypeParam(sign * std::nextafter(middle, INFINITY)).bits, hi | s);
    }
  }
}

TYPED_TEST(HalfTest, SpecialsStaySpecial) {
  EXPECT_EQ(TypeParam(INFINITY).bits, Format<TypeParam>::kInf);
  EXPECT_EQ(TypeParam(-INFINITY).bits, Format<TypeParam>::kInf | 0x8000);
  EXPECT_EQ(TypeParam(std::numeric_limits<float>::max()).bits, Format<TypeParam>::kInf);
  EXPECT_EQ(TypeParam(-0.0f).bits, 0x8000);
  // A NaN whose payload lies only in the bits that are cut off must not become infinity.
  const TypeParam nan(std::bit_cast<float>(0x7f800001u));
  EXPECT_TRUE(std::isnan(static_cast<float>(nan)));
}

}  // namespace
}  // namespace tegula
