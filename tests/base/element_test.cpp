#include "tegula/base/element.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>

namespace tegula {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(Element, RoundsToTheNearestOfItsDtype) {
  const double third = 1.0 / 3;
  EXPECT_EQ(rounded_to(DType::kF64, third), third);
  EXPECT_EQ(rounded_to(DType::kF32, third), 11184811 * 0x1p-25);
  EXPECT_EQ(rounded_to(DType::kBF16, third), 171 * 0x1p-9);
  EXPECT_EQ(rounded_to(DType::kF16, third), 1365 * 0x1p-12);
  EXPECT_EQ(rounded_to(DType::kF8E4M3, third), 11 * 0x1p-5);
  EXPECT_EQ(rounded_to(DType::kBF16, 1 + 0x1p-8), 1);               // a tie: to the even one
  EXPECT_EQ(rounded_to(DType::kBF16, 1 + 3 * 0x1p-8), 1 + 0x1p-6);  // as here
}

TEST(Element, BeyondTheLargestIsInfinityOrTheLargest) {
  EXPECT_EQ(rounded_to(DType::kF32, 1e300), kInf);
  EXPECT_EQ(rounded_to(DType::kF16, -65520), -kInf);
  EXPECT_EQ(rounded_to(DType::kF8E4M3, 1e9), 448);
  EXPECT_EQ(rounded_to(DType::kI8, 300), 127);
  EXPECT_EQ(rounded_to(DType::kU8, -1), 0);
  EXPECT_EQ(rounded_to(DType::kI32, -kInf), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(rounded_to(DType::kBool, -.5), 1);
}

TEST(Element, NaNStaysWhereThereIsOne) {
  for (const DType t : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16, DType::kF8E4M3})
    EXPECT_TRUE(std::isnan(rounded_to(t, std::nan("")))) << dtype_name(t);
  EXPECT_EQ(rounded_to(DType::kI32, std::nan("")), 0);
}

TEST(Element, IntegersBeyondDoublesArePassedWhole) {
  int64_t x[2] = {0, 0};
  TensorRef t;
  t.data = x, t.dtype = DType::kI64;
  const int64_t odd = (int64_t{1} << 60) + 1;
  store_int(t, 1, odd);
  EXPECT_EQ(x[0], 0);
  EXPECT_EQ(x[1], odd);
  EXPECT_EQ(load_int(t, 1), odd);
  EXPECT_EQ(load_element(t, 1), 0x1p60);
}

TEST(Element, IntegersWrapAndFloatsAreHeldAtTheEnds) {
  for (const auto& [dtype, of_300, of_1e30] :
       {std::tuple(DType::kI64, int64_t{300}, std::numeric_limits<int64_t>::max()),
        std::tuple(DType::kI32, int64_t{300}, int64_t{INT32_MAX}),
        std::tuple(DType::kI8, int64_t{44}, int64_t{127}),
        std::tuple(DType::kU8, int64_t{44}, int64_t{255}),
        std::tuple(DType::kBool, int64_t{1}, int64_t{1})}) {
    int64_t x = 0;
    TensorRef t;
    t.data = &x, t.dtype = dtype;
    store_int(t, 0, 300);
    EXPECT_EQ(load_int(t, 0), of_300) << dtype_name(dtype);
    store_element(t, 0, 1e30);
    EXPECT_EQ(load_int(t, 0), of_1e30) << dtype_name(dtype);
  }
}

}  // namespace
}  // namespace tegula
