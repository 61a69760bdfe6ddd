#include "tests/passes/passes.h"

namespace tegula {
namespace {

Type f32(Shape s) { return {DType::kF32, s}; }
constexpr const char* kSpec = "b s k, n k -> b s n";

struct Net {
  Module m;
  Builder b{m, "f"};
  Var x = b.param("x", f32({4, 16, 8}));
  Var weight(const char* name, Shape s) { return b.weight(name, f32(s)); }
};

TEST(QkvConcat, OneDotAndThreeSlices) {
  Net n;
  n.b.result("q", dot(kSpec, n.x, n.weight("wq", {8, 8})));
  n.b.result("k", dot(kSpec, n.x, n.weight("wk", {4, 8})));
  n.b.result("v", dot(kSpec, n.x, n.weight("wv", {4, 8})));
  const FuncId f = finish(n.b);
  const Function before = n.m[f];
  EXPECT_TRUE(run(n.m, f, "qkv_concat"));
  expect_same_bits(n.m, before, n.m[f]);
  EXPECT_EQ(n.m[f].type(only(n.m[f], dot_op)->output()).shape, (Shape{4, 16, 16}));
  EXPECT_EQ(only(n.m[f], concat_op)->inputs.size(), 3u);
  EXPECT_EQ(count(n.m[f], slice_op), 3);
  EXPECT_FALSE(run(n.m, f, "qkv_concat"));
}

TEST(QkvConcat, TakesCastWeightsThatComeLater) {
  Net n;
  const Var low = cast(n.x, DType::kBF16);
  auto w = [&](const char* name) { return cast(n.weight(name, {8, 8}), DType::kBF16); };
  n.b.result("q", tanh(dot(kSpec, low, w("wq"))));
  n.b.result("k", dot(kSpec, low, w("wk")));
  n.b.result("v", dot(kSpec, low, w("wv")));
  const FuncId f = finish(n.b);
  const Function before = n.m[f];
  EXPECT_TRUE(run(n.m, f, "qkv_concat"));
  expect_same_bits(n.m, before, n.m[f]);
  EXPECT_EQ(count(n.m[f], dot_op), 1);
}

TEST(QkvConcat, LeavesAlone) {
  Net n;
  auto w = [&](int i) { return n.b.weight(cat("w", i), f32({4, 8})); };
  const Var y = n.b.param("y", f32({4, 16, 8}));
  // Another operand, an order of its own, no weight, and the same product twice.
  n.b.result("a", dot(kSpec, n.x, w(0)));
  n.b.result("b", dot(kSpec, y, w(1)));
  n.b.result("c", dot("b s k, n k -> b n s", n.x, w(2)));
  n.b.result("d", dot(kSpec, n.x, n.b.param("z", f32({4, 8}))));
  n.b.set_phase(Phase::kBackward);
  n.b.result("e", dot(kSpec, n.x, w(3)));
  const FuncId f = finish(n.b);
  EXPECT_FALSE(run(n.m, f, "qkv_concat"));
}

TEST(QkvConcat, LeavesWhatDoesNotPay) {
  Module m;
  Builder b(m, "decode");  // one row: the weights are what moves
  const Var x = b.param("x", f32({1, 1, 8}));
  b.result("q", dot(kSpec, x, b.weight("wq", f32({8, 8}))));
  b.result("k", dot(kSpec, x, b.weight("wk", f32({8, 8}))));
  EXPECT_FALSE(run(m, finish(b), "qkv_concat"));
}

}  // namespace
}  // namespace tegula
