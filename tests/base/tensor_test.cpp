#include "tegula/base/tensor.h"

#include <gtest/gtest.h>

namespace tegula {
namespace {

TEST(TensorRef, ContiguousStridesAreRowMajorAtTheBound) {
  float data[24];
  const TensorRef t = contiguous_ref(data, {DType::kF32, {2, Dim::of(0, 3), 4}});
  ASSERT_EQ(t.rank, 3);
  EXPECT_EQ(t.numel(), 24);
  EXPECT_EQ(t.stride[0], 12);
  EXPECT_EQ(t.stride[1], 4);
  EXPECT_EQ(t.stride[2], 1);
  EXPECT_TRUE(t.is_contiguous());
  EXPECT_EQ(t.as<float>(), data);
}

TEST(TensorRef, GapsBroadcastsAndReversalsAreNotContiguous) {
  const TensorRef whole = contiguous_ref(nullptr, {DType::kF32, {2, 3}});
  TensorRef t = whole;
  t.stride[0] = 4;
  EXPECT_FALSE(t.is_contiguous());
  t = whole;
  t.stride[1] = 0;
  EXPECT_FALSE(t.is_contiguous());
  t = whole;
  t.stride[1] = -1;
  EXPECT_FALSE(t.is_contiguous());
}

TEST(TensorRef, ADimOfOneMayHaveAnyStride) {
  TensorRef t = contiguous_ref(nullptr, {DType::kF32, {3, 1, 2}});
  t.stride[1] = 77;
  EXPECT_TRUE(t.is_contiguous());
}

TEST(TensorRef, AScalarHasOneElement) {
  const TensorRef t = contiguous_ref(nullptr, {DType::kBool, {}});
  EXPECT_EQ(t.rank, 0);
  EXPECT_EQ(t.numel(), 1);
  EXPECT_TRUE(t.is_contiguous());
}

}  // namespace
}  // namespace tegula
