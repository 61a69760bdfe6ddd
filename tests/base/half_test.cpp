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

// By its definition: as IEEE 754's with 4 and 3 bits, but the highest exponent is one of values,
// and only its last pattern is NaN.
double value_of_e4m3(uint32_t bits) {
  if ((bits & 0x7f) == 0x7f) return std::numeric_limits<double>::quiet_NaN();
  const double sign = bits >> 7 ? -1 : 1;
  const int e = static_cast<int>(bits >> 3) & 15, m = static_cast<int>(bits) & 7;
  return sign * (e == 0 ? std::ldexp(m, -9) : std::ldexp(8 + m, e - 10));
}

f8e4m3 e4m3_of(uint32_t bits) {
  f8e4m3 x;
  x.bits = static_cast<uint8_t>(bits);
  return x;
}

TEST(E4m3, EveryPatternWidensToItsValueAndBack) {
  for (uint32_t bits = 0; bits < 0x100; ++bits) {
    const double want = value_of_e4m3(bits);
    const float got = static_cast<float>(e4m3_of(bits));
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(got)) << bits;
    } else {
      EXPECT_EQ(static_cast<double>(got), want) << bits;
    }
    EXPECT_EQ(std::signbit(got), bits >> 7 == 1) << bits;
    EXPECT_EQ(f8e4m3(got).bits, bits);
  }
}

TEST(E4m3, RoundsToNearestEvenAroundEveryMidpoint) {
  for (uint32_t lo = 0; lo < 0x7e; ++lo) {
    const auto middle = static_cast<float>((value_of_e4m3(lo) + value_of_e4m3(lo + 1)) / 2);
    for (const uint32_t sign : {0U, 0x80U}) {
      const float s = sign == 0 ? 1.0f : -1.0f;
      EXPECT_EQ(f8e4m3(s * middle).bits, (lo + lo % 2) | sign);
      EXPECT_EQ(f8e4m3(s * std::nextafter(middle, 0.0f)).bits, lo | sign);
      EXPECT_EQ(f8e4m3(s * std::nextafter(middle, INFINITY)).bits, (lo + 1) | sign);
    }
  }
}

TEST(E4m3, SaturatesAndKeepsNaN) {
  for (const float x : {448.5f, 464.0f, 1e30f, INFINITY}) {
    EXPECT_EQ(f8e4m3(x).bits, 0x7e) << x;
    EXPECT_EQ(f8e4m3(-x).bits, 0xfe) << x;
  }
  EXPECT_EQ(f8e4m3(0x1p-149f).bits, 0);
  EXPECT_EQ(f8e4m3(-0.0f).bits, 0x80);
  EXPECT_TRUE(std::isnan(static_cast<float>(f8e4m3(std::bit_cast<float>(0x7f800001u)))));
}

}  // namespace
}  // namespace tegula
