#include "tests/passes/passes.h"

namespace tegula {
namespace {

Type f32(Shape s) { return {DType::kF32, s}; }

// The value of a result that is a constant seen through at most one view.
double constant_of(const Function& f, std::string_view result) {
  const Node* n = f.producer(f.results[static_cast<size_t>(f.find_result(result))].value);
  if (n && n->op == &broadcast_op) n = f.producer(n->inputs[0]);
  if (!n || n->op != &constant_op) {
    ADD_FAILURE() << result << " is no constant";
    return 0;
  }
  return n->attrs.f("value");
}

TEST(Fold, ElementwiseInTheValuesOwnDType) {
  Module m;
  Builder b(m, "f");
  b.result("f32", fill(b, 0.1, f32({3})) + 0.2);
  b.result("bf16", constant(b, 1.0, DType::kBF16) + constant(b, 0x1p-9, DType::kBF16));
  b.result("bool", lt(constant(b, 1, DType::kI32), constant(b, 2, DType::kI32)));
  b.result("select", select(constant(b, 0, DType::kBool), constant(b, 1, DType::kF64),
                            constant(b, 2, DType::kF64)));
  b.result("cast", cast(constant(b, 2.7, DType::kF32), DType::kI32));
  const FuncId f = finish(b);
  EXPECT_TRUE(run_checked(m, f, "fold"));
  EXPECT_EQ(constant_of(m[f], "f32"), 0.1f + 0.2f);
  EXPECT_EQ(constant_of(m[f], "bf16"), 1.0);
  EXPECT_EQ(constant_of(m[f], "bool"), 1);
  EXPECT_EQ(constant_of(m[f], "select"), 2);
  EXPECT_EQ(constant_of(m[f], "cast"), 2);
  EXPECT_EQ(n_working(m[f]), 0);
}

TEST(Fold, ChainsThroughViews) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", f32({2, 3}));
  const Var c = permute(reshape(fill(b, 3, f32({6})), {3, 2}), {1, 0}) * 2.0 - 1.0;
  b.result("y", x * slice(c, 0, 0, 2));
  const FuncId f = finish(b);
  EXPECT_TRUE(run_checked(m, f, "fold"));
  EXPECT_EQ(n_working(m[f]), 1);
}

TEST(Fold, NotWhatKernelsRoundDifferently) {
  Module m;
  Builder b(m, "f");
  b.result("exp", exp(constant(b, 1, DType::kF32)));
  b.result("pow", pow(constant(b, 3, DType::kF32), 0.3));
  b.result("denormal", constant(b, 0x1p-120, DType::kF32) * 0x1p-20);
  const FuncId f = finish(b);
  EXPECT_FALSE(run_checked(m, f, "fold"));
}

TEST(Fold, NotWhatIsReadAtRunTime) {
  Module m;
  const Dim n = m.add_symbol("n", 5);
  Builder b(m, "f");
  const Var x = b.param("x", f32({n}));
  b.result("sum", reduce_sum(fill(b, 1, f32({n})), {0}));
  b.result("n", extent(x, 0, DType::kF32));
  b.result("iota", iota(b, {n}, 0, DType::kI32));
  const FuncId f = finish(b);
  EXPECT_FALSE(run_checked(m, f, "fold"));
}

TEST(Fold, Reductions) {
  Module m;
  Builder b(m, "f");
  b.result("max", reduce_max(fill(b, -3, f32({4, 5})), {0}));
  b.result("sum", reduce_sum(fill(b, 0.75, f32({4, 5})), {0, 1}));
  b.result("inexact", reduce_sum(fill(b, 0.1, f32({4, 5})), {0, 1}));
  b.result("empty", reduce_max(fill(b, -3, f32({0, 5})), {0}));
  const FuncId f = finish(b);
  EXPECT_TRUE(run_checked(m, f, "fold"));
  EXPECT_EQ(constant_of(m[f], "max"), -3);
  EXPECT_EQ(constant_of(m[f], "sum"), 15);
  EXPECT_EQ(count(m[f], reduce_sum_op), 1);
  EXPECT_EQ(count(m[f], reduce_max_op), 1);
}

TEST(Fold, JoinsPadsAndIotaOfOne) {
  Module m;
  Builder b(m, "f");
  const Var parts[] = {fill(b, 2, f32({2})), fill(b, 2, f32({3}))};
  b.result("concat", concat(parts, 0));
  b.result("pad", pad(fill(b, 2, f32({2})), 0, 1, 0, 0, 2.0));
  b.result("iota", iota(b, {4, 1}, 1, DType::kF32));
  const Var mixed[] = {fill(b, 0, f32({2})), fill(b, -0.0, f32({3}))};
  b.result("zeros", concat(mixed, 0));
  const FuncId f = finish(b);
  EXPECT_TRUE(run_checked(m, f, "fold"));
  EXPECT_EQ(constant_of(m[f], "concat"), 2);
  EXPECT_EQ(constant_of(m[f], "pad"), 2);
  EXPECT_EQ(constant_of(m[f], "iota"), 0);
  EXPECT_EQ(count(m[f], concat_op), 1);
}

}  // namespace
}  // namespace tegula
