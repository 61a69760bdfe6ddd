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

TEST(MergeProducts, OneDotAndThreeSlices) {
  Net n;
  n.b.result("q", dot(kSpec, n.x, n.weight("wq", {8, 8})));
  n.b.result("k", dot(kSpec, n.x, n.weight("wk", {4, 8})));
  n.b.result("v", dot(kSpec, n.x, n.weight("wv", {4, 8})));
  const FuncId f = finish(n.b);
  const Function before = n.m[f];
  EXPECT_TRUE(run(n.m, f, "merge_products"));
  expect_same_bits(n.m, before, n.m[f]);
  EXPECT_EQ(n.m[f].type(only(n.m[f], dot_op)->output()).shape, (Shape{4, 16, 16}));
  EXPECT_EQ(only(n.m[f], concat_op)->inputs.size(), 3u);
  EXPECT_EQ(count(n.m[f], slice_op), 3);
  EXPECT_FALSE(run(n.m, f, "merge_products"));
}

TEST(MergeProducts, TakesCastWeightsThatComeLater) {
  Net n;
  const Var low = cast(n.x, DType::kBF16);
  auto w = [&](const char* name) { return cast(n.weight(name, {8, 8}), DType::kBF16); };
  n.b.result("q", tanh(dot(kSpec, low, w("wq"))));
  n.b.result("k", dot(kSpec, low, w("wk")));
  n.b.result("v", dot(kSpec, low, w("wv")));
  const FuncId f = finish(n.b);
  const Function before = n.m[f];
  EXPECT_TRUE(run(n.m, f, "merge_products"));
  expect_same_bits(n.m, before, n.m[f]);
  EXPECT_EQ(count(n.m[f], dot_op), 1);
}

TEST(MergeProducts, LeavesAlone) {
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
  EXPECT_FALSE(run(n.m, f, "merge_products"));
}

// A factor that is no weight stays by itself, and so does one that is concatenated with another
// value.
TEST(MergeProducts, TakesWeightsAlone) {
  Net n;
  const Var z[] = {n.b.param("z0", f32({4, 8})), n.b.param("z1", f32({4, 8}))};
  n.b.result("p", dot(kSpec, n.x, z[0]));
  n.b.result("q", dot(kSpec, n.x, n.weight("wq", {4, 8})));
  n.b.result("r", dot(kSpec, n.x, z[1]));
  n.b.result("k", dot(kSpec, n.x, n.weight("wk", {4, 8})));
  for (const Var& v : z) n.b.result("twice", concat(std::vector<Var>{v, v}, 0));
  const FuncId f = finish(n.b);
  const Function before = n.m[f];
  EXPECT_TRUE(run(n.m, f, "merge_products"));
  expect_same_bits(n.m, before, n.m[f]);
  EXPECT_EQ(count(n.m[f], dot_op), 3) << "q and k are one";
  Net apart;
  const Var y = apart.b.param("y", f32({4, 8}));
  apart.b.result("p", dot(kSpec, apart.x, y));
  for (const char* name : {"q", "k"})
    apart.b.result(name, dot(kSpec, apart.x, apart.weight(name, {4, 8})));
  const FuncId g = finish(apart.b);
  EXPECT_TRUE(run(apart.m, g, "merge_products"));
  EXPECT_EQ(count(apart.m[g], dot_op), 2);
}

// The rule is of two matrices; a factor may be several dims, in any order, and a batch beside.
TEST(MergeProducts, AnyOrderOfDims) {
  struct Case {
    const char* spec;
    Shape x, w[2];
  };
  for (const auto& [spec, x, w] :
       std::vector<Case>{{"k b s, k n -> n s b", {8, 4, 16}, {{8, 4}, {8, 6}}},
                         {"e t k, e n k -> e t n", {3, 64, 8}, {{3, 4, 8}, {3, 6, 8}}},
                         {"t e k l, n l e k -> n e t", {64, 3, 2, 4}, {{4, 4, 3, 2}, {6, 4, 3, 2}}},
                         {"s k, s n -> k n", {16, 512}, {{16, 3}, {16, 5}}},
                         {"k, k n -> n", {512}, {{512, 0}, {512, 0}}}}) {
    Module m;
    Builder b(m, "f");
    const Var in = b.param("x", f32(x));
    for (int i = 0; i < 2; ++i)
      b.result(cat("y", i), dot(spec, in, b.weight(cat("w", i), f32(w[i]))));
    const FuncId f = finish(b);
    const Function before = m[f];
    const bool is_empty = w[0].numel() == 0;  // no rule is proven for size 0
    EXPECT_EQ(run(m, f, "merge_products"), !is_empty) << spec;
    EXPECT_EQ(count(m[f], dot_op), is_empty ? 2 : 1) << spec;
    if (!is_empty) expect_same_bits(m, before, m[f]);
  }
}

TEST(MergeProducts, OneDimOfEachIsConcatenated) {
  Net n;  // two dims are the weights' own
  for (const char* name : {"q", "k"})
    n.b.result(name, dot("b s k, h d k -> b s h d", n.x, n.weight(name, {2, 2, 8})));
  EXPECT_FALSE(run(n.m, finish(n.b), "merge_products"));
}

TEST(MergeProducts, LeavesWhatDoesNotPay) {
  Module m;
  Builder b(m, "decode");  // one row: the weights are what moves
  const Var x = b.param("x", f32({1, 1, 8}));
  b.result("q", dot(kSpec, x, b.weight("wq", f32({8, 8}))));
  b.result("k", dot(kSpec, x, b.weight("wk", f32({8, 8}))));
  EXPECT_FALSE(run(m, finish(b), "merge_products"));
}

}  // namespace
}  // namespace tegula
