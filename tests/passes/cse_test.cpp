#include "tests/passes/passes.h"

namespace tegula {
namespace {

const Type kX = {DType::kF32, {3, 4}};

TEST(Cse, MergesEqualChains) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", kX), y = b.param("y", kX);
  b.result("z", exp(x * y + 1.0) - exp(x * y + 1.0) * 2.0);
  const FuncId f = finish(b);
  EXPECT_TRUE(run(m, f, "cse"));
  EXPECT_EQ(count(m[f], exp_op), 1);
  EXPECT_EQ(count(m[f], add_op), 1);
  EXPECT_EQ(count(m[f], mul_op), 2);
  EXPECT_EQ(count(m[f], constant_op), 2);
  EXPECT_FALSE(run(m, f, "cse"));
}

TEST(Cse, OperandsOfCommutativeOpsOnly) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", kX), y = b.param("y", kX);
  b.result("a", (x + y) * (y + x));
  b.result("b", (x - y) * (y - x));
  b.result("c", max(x, y) * max(y, x));  // of 0 and -0 the second is taken
  const FuncId f = finish(b);
  EXPECT_TRUE(run(m, f, "cse"));
  EXPECT_EQ(count(m[f], add_op), 1);
  EXPECT_EQ(count(m[f], sub_op), 2);
  EXPECT_EQ(count(m[f], max_op), 2);
}

// Enough of them that some meet in one place of the table: there attributes alone tell them apart.
TEST(Cse, ManyThatDifferInAnAttributeAlone) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", {DType::kF32, {400}});
  for (int64_t i = 0; i < 400; ++i) b.result(cat("y", i), pad(x, 0, i, 400 - i, 0, 0.0));
  const FuncId f = finish(b);
  EXPECT_FALSE(run(m, f, "cse"));
  EXPECT_EQ(count(m[f], pad_op), 400);
}

TEST(Cse, ToldApartByAttributesAndTypes) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", {DType::kF32, {4, 4}});
  b.result("a", reduce_sum(x, {0}) + reduce_sum(x, {1}));
  b.result("b", cast(cast(x, DType::kBF16), DType::kF32) + cast(cast(x, DType::kF16), DType::kF32));
  b.result("zero", constant(b, 0.0, DType::kF32));
  b.result("minus zero", constant(b, -0.0, DType::kF32));
  b.result("double zero", constant(b, 0.0, DType::kF64));
  const FuncId f = finish(b);
  EXPECT_FALSE(run(m, f, "cse"));
}

TEST(Cse, NeverMergesBarriers) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", kX);
  const Var xs[] = {x};
  b.result("y", exp(barrier(xs, {})[0]) * exp(barrier(xs, {})[0]));
  const FuncId f = finish(b);
  EXPECT_FALSE(run(m, f, "cse"));
  EXPECT_EQ(count(m[f], exp_op), 2);
}

TEST(Cse, ResultsFollow) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", kX);
  b.result("a", exp(x));
  b.result("b", exp(x));
  const FuncId f = finish(b);
  EXPECT_TRUE(run(m, f, "cse"));
  EXPECT_EQ(m[f].results[0].value, m[f].results[1].value);
  EXPECT_EQ(m[f].nodes.size(), 1u);
}

}  // namespace
}  // namespace tegula
