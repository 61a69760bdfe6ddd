// Views that the plan must copy first, because no strides of theirs lead to the operand's elements.
#include <gtest/gtest.h>

#include "tegula/ops/math.h"
#include "tests/common/run_plan.h"

namespace tegula::test {
namespace {

TEST(Views, ReshapeThatMergesABroadcastDimIsCopied) {
  auto m = std::make_shared<Module>();
  Builder b(*m, "f");
  const Var x = b.param("x", {DType::kF32, {4, 3}});
  const Var twice = broadcast(unsqueeze(x, 1), {4, 2, 3});  // strides 3, 0, 1
  b.result("y", reshape(twice, {8, 3}) + 1.0);
  b.result("z", reduce_sum(reshape(twice, {2, 12}), {1}));
  const auto f = b.finish_into_module();
  ASSERT_TRUE(f.ok()) << f.error().to_string();
  expect_bits_of_interpreter(m, *f);
}

}  // namespace
}  // namespace tegula::test
