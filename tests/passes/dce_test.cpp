#include "tests/passes/passes.h"

namespace tegula {
namespace {

TEST(Dce, RemovesWhatNoResultReads) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", {DType::kF32, {3}});
  const Var y = exp(x);
  mul(y, exp(y));
  b.result("y", y + 1.0);
  const FuncId f = finish(b);
  EXPECT_TRUE(run(m, f, "dce"));
  EXPECT_EQ(m[f].nodes.size(), 4u);  // exp, constant, broadcast, add
  EXPECT_EQ(count(m[f], mul_op), 0);
  EXPECT_EQ(count(m[f], exp_op), 1);
  EXPECT_EQ(m[f].values.size(), 5u);
  EXPECT_EQ(m[f].producer(m[f].results[0].value)->op, &add_op);
  EXPECT_FALSE(run(m, f, "dce"));
}

TEST(Dce, KeepsParametersAndDonations) {
  Module m;
  Builder b(m, "f");
  b.param("unused", {DType::kF32, {2}});
  const Var s = b.param("s", {DType::kF32, {3}}, Role::kState);
  exp(s);
  b.result("other", neg(s));
  b.result("s", s * 2.0);
  b.donate("s", "s");
  const FuncId f = finish(b);
  EXPECT_TRUE(run(m, f, "dce"));
  ASSERT_EQ(m[f].params.size(), 2u);
  EXPECT_EQ(m[f].params[0].name, "unused");
  EXPECT_EQ(m[f].params[1].donated_to, 1);
  EXPECT_EQ(m[f].producer(m[f].results[0].value)->op, &neg_op);
}

TEST(Dce, ANodeOfSeveralOutputsGoesAsAWhole) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", {DType::kF32, {3}});
  const Var xs[] = {exp(x), neg(x)};
  const auto kept = barrier(xs, {});
  const auto dead = barrier(kept, {});
  (void)dead;
  b.result("y", kept[1]);
  const FuncId f = finish(b);
  EXPECT_TRUE(run(m, f, "dce"));
  EXPECT_EQ(count(m[f], barrier_op), 1);
  EXPECT_EQ(count(m[f], exp_op), 1);
  EXPECT_EQ(only(m[f], barrier_op)->n_outputs, 2u);
}

}  // namespace
}  // namespace tegula
