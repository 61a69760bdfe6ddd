#include "tegula/cost/price.h"

#include <gtest/gtest.h>

#include "tegula/ops/table.h"

namespace tegula {
namespace {

TEST(Price, IsTheLongerOfWorkAndBytes) {
  const Target h200 = *find_target("h200");
  // 2·4096³ operations of bf16 at 989e12 a second; 3·4096²·2 bytes at 4.8e12.
  EXPECT_DOUBLE_EQ(price(h200, DType::kBF16, 2.0 * 4096 * 4096 * 4096, 3.0 * 4096 * 4096 * 2),
                   2.0 * 4096 * 4096 * 4096 / 989e12);
  EXPECT_DOUBLE_EQ(price(h200, DType::kF32, 0, 4.8e12), 1);
  Target slower = h200;
  slower.flops_efficiency = 0.5, slower.bytes_efficiency = 0.25;
  EXPECT_DOUBLE_EQ(price(slower, DType::kBF16, 989e12, 0), 2);
  EXPECT_DOUBLE_EQ(price(slower, DType::kBF16, 0, 4.8e12), 4);
}

TEST(Price, OfAnOp) {
  const Target h200 = *find_target("h200");
  const Attrs attrs{{"dims", std::string("m k, k n -> m n")}};
  const Type a{DType::kBF16, {1, 4096}}, b{DType::kBF16, {4096, 4096}}, y{DType::kBF16, {1, 4096}};
  const Type in[] = {a, b}, out[] = {y};
  // One row: the matrix is read, and that is all the time.
  EXPECT_DOUBLE_EQ(price(h200, {&dot_op, &attrs, in, out, nullptr, {}}),
                   2.0 * (4096 + 4096 * 4096 + 4096) / 4.8e12);
}

TEST(Price, OfAMachineThatNobodyMeasured) {
  EXPECT_DOUBLE_EQ(price(Target::one_thread(), DType::kF32, 1e11, 0), 1);
  EXPECT_DOUBLE_EQ(price(Target::one_thread(), DType::kF32, 0, 1e10), 1);
}

}  // namespace
}  // namespace tegula
