#include "tegula/base/shape.h"

#include <gtest/gtest.h>

#include <optional>

namespace tegula {
namespace {

constexpr int64_t kBound = 12;
const Dim kS = Dim::of(0, kBound);
const Dim kT = Dim::of(1, 5);

Dim affine(int64_t scale, int64_t offset) { return *add(*mul(kS, Dim(scale)), Dim(offset)); }

TEST(Dim, PrintsAsAffine) {
  const Symbol symbols[] = {{"batch", kBound}, {"time", 5}};
  EXPECT_EQ(cat(Dim(7)), "7");
  EXPECT_EQ(cat(kS), "s0");
  EXPECT_EQ(to_string(affine(3, -2), symbols), "3*batch-2");
  EXPECT_EQ(to_string(*add(kT, Dim(1)), symbols), "time+1");
}

// The results of arithmetic on dims equal arithmetic on their extents, at every extent.
TEST(Dim, ArithmeticAgreesWithIntegersAtEveryExtent) {
  for (int64_t sa : {0, 1, 2, 6})
    for (int64_t oa : {-3, 0, 4, 12})
      for (int64_t sb : {0, 1, 3})
        for (int64_t ob : {0, 2, 6}) {
          const Dim a = affine(sa, oa), b = affine(sb, ob);
          const auto sum = add(a, b);
          const auto product = mul(a, b);
          const auto quotient = div_exact(a, b);
          ASSERT_TRUE(sum.ok());
          EXPECT_EQ(product.ok(), sa == 0 || sb == 0);
          std::optional<bool> divides;
          for (int64_t s = 0; s <= kBound; ++s) {
            const int64_t extents[] = {s};
            const int64_t x = sa * s + oa, y = sb * s + ob;
            EXPECT_EQ(sum->at(extents), x + y);
            if (product.ok()) EXPECT_EQ(product->at(extents), x * y);
            if (quotient.ok() && y != 0) EXPECT_EQ(quotient->at(extents) * y, x);
            divides = divides.value_or(true) && y != 0 && x % y == 0;
          }
          // A constant divisor that divides at every extent must be accepted.
          if (sb == 0 && *divides) EXPECT_TRUE(quotient.ok()) << cat(a, " / ", b);
          if (!*divides && sb == 0) EXPECT_FALSE(quotient.ok()) << cat(a, " / ", b);
        }
}

TEST(Dim, SymbolsCancel) {
  const Dim zero = *add(kS, *mul(kS, Dim(-1)));
  EXPECT_TRUE(zero.is_const());
  EXPECT_EQ(zero, Dim(0));
  EXPECT_EQ(*div_exact(affine(6, 4), affine(3, 2)), Dim(2));
  EXPECT_EQ(*div_exact(kS, kS), Dim(1));
}

TEST(Dim, TwoSymbolsAreRefusedWithTheRemedy) {
  EXPECT_NE(add(kS, kT).error().message.find("keep the dims apart"), std::string::npos);
  EXPECT_NE(mul(kS, kT).error().message.find("s0 * s1"), std::string::npos);
  EXPECT_FALSE(div_exact(kS, kT).ok());
  EXPECT_NE(div_exact(Dim(7), Dim(2)).error().message.find("7 is not divisible by 2"),
            std::string::npos);
  EXPECT_FALSE(div_exact(Dim(7), Dim(0)).ok());
}

TEST(Dim, ScalesPast32BitsAreRefused) {
  EXPECT_FALSE(mul(kS, Dim(int64_t{1} << 31)).ok());
  EXPECT_TRUE(mul(kS, Dim((int64_t{1} << 31) - 1)).ok());
}

TEST(Shape, CountsAtTheBoundAndAtExtents) {
  const Shape s{2, kS, *mul(kT, Dim(2))};
  const int64_t extents[] = {3, 4};
  EXPECT_EQ(s.numel(), 2 * 12 * 10);
  EXPECT_EQ(s.numel_at(extents), 2 * 3 * 8);
  EXPECT_FALSE(s.is_const());
  EXPECT_EQ(s.at(extents), (Shape{2, 3, 8}));
  EXPECT_EQ(cat(s), "[2,s0,2*s1]");
  EXPECT_EQ(Shape{}.numel(), 1);
}

TEST(Shape, InsertsAndErases) {
  Shape s{2, 4};
  s.insert(1, 3);
  EXPECT_EQ(s, (Shape{2, 3, 4}));
  s.insert(0, 1);
  EXPECT_EQ(s, (Shape{1, 2, 3, 4}));
  s.insert(4, 5);
  s.erase(0);
  EXPECT_EQ(s, (Shape{2, 3, 4, 5}));
  s.erase(3);
  EXPECT_EQ(s, (Shape{2, 3, 4}));
  EXPECT_FALSE((s == Shape{2, 3}));
}

TEST(Type, BytesAreAtTheBound) {
  EXPECT_EQ((Type{DType::kBF16, Shape{3, kS}}.bytes()), 3 * 12 * 2);
  EXPECT_EQ(cat(Type{DType::kI64, Shape{3, kS}}), "i64[3,s0]");
}

TEST(DType, NamesRoundTrip) {
  for (DType t : kAllDTypes) EXPECT_EQ(parse_dtype(dtype_name(t)), t);
  EXPECT_EQ(parse_dtype("float"), std::nullopt);
}

}  // namespace
}  // namespace tegula
