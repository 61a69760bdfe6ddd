#include "tests/passes/passes.h"

namespace tegula {
namespace {

Type f32(Shape s) { return {DType::kF32, s}; }

struct Layer {
  Module m;
  Builder b{m, "f"};
  Var x = b.param("x", f32({2, 3, 8})), w = b.weight("w", f32({8, 6}));
  Var bias = b.weight("bias", f32({6}));
};

TEST(BiasActivation, OneDotForALayer) {
  for (const char* name : {"none", "gelu", "silu", "relu"}) {
    Layer l;
    const Var y = matmul(l.x, l.w) + l.bias;
    const std::string act = name;
    l.b.result("y", act == "gelu"   ? gelu(y)
                    : act == "silu" ? silu(y)
                    : act == "relu" ? relu(y)
                                    : y);
    const FuncId f = finish(l.b);
    EXPECT_TRUE(run_checked(l.m, f, "bias_activation"));
    ASSERT_EQ(n_working(l.m[f]), 1) << name;
    const Node* n = only(l.m[f], dot_op);
    EXPECT_EQ(n->inputs.size(), 3u);
    EXPECT_EQ(n->attrs.get_or<std::string>("activation", "none"), act);
  }
}

TEST(BiasActivation, AScaleOfTheProduct) {
  Layer l;
  l.b.result("scaled", matmul(l.x, l.w) * 0.3);
  l.b.result("whole", gelu(0.3 * matmul(l.x * 2.0, l.w) + l.bias));
  const FuncId f = finish(l.b);
  EXPECT_TRUE(run_checked(l.m, f, "bias_activation"));
  EXPECT_EQ(count(l.m[f], mul_op), 1);  // x's
  EXPECT_EQ(count(l.m[f], add_op), 0);
  EXPECT_EQ(count(l.m[f], gelu_op), 0);
  for (const Node& n : l.m[f].nodes) {
    if (n.op == &dot_op) {
      EXPECT_EQ(n.attrs.f("scale"), static_cast<double>(0.3F));
    }
  }
}

// A value that is summed shard by shard is joined after its kernel, and scaled after that:
// micro-batches' gradients of weights, in mode exact over a sequence with shards.
TEST(BiasActivation, LeavesSumsThatAreJoinedLater) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", f32({2, 256, 3})), g = b.param("g", f32({2, 256, 6}));
  const Var bias = b.weight("bias", f32({6}));
  const Var scaled = dot("b s m, b s n -> m n", x, g) * 0.3;
  const Var biased = dot("b s m, b s n -> m n", x * 2.0, g) + bias;
  const Var activated = relu(dot("b s m, b s n -> m n", x, g * 2.0));
  b.result("scaled", scaled), b.result("biased", biased), b.result("activated", activated);
  const FuncId f = finish(b);
  PassOptions o;
  o.mode = Mode::kExact, o.is_step = true;
  ASSERT_TRUE(run(m, f, "exact_shards", o));
  EXPECT_FALSE(run_checked(m, f, "bias_activation", o));
  ASSERT_TRUE(run(m, f, "sum_shards", o));
  EXPECT_EQ(count(m[f], dot_op), 3);
  for (const Node& n : m[f].nodes)
    EXPECT_TRUE(n.op != &dot_op || n.attrs.get_or<int64_t>("k_shards", 1) == 8);
}

TEST(BiasActivation, WithoutBiasAndWithAWiderOne) {
  Layer l;
  l.b.result("y", relu(matmul(l.x, l.w)));
  const Var row = l.b.param("row", f32({1, 6}));  // as [1, 1, 6] is
  l.b.result("z", broadcast(row, Shape{2, 3, 6}) + matmul(l.x * 2.0, l.w));
  const Var two = l.b.param("two", f32({8, 2, 3})), both = l.b.param("both", f32({2, 3}));
  l.b.result("v", dot("b s k, k g h -> b s g h", l.x, two) + both);
  const FuncId f = finish(l.b);
  EXPECT_TRUE(run_checked(l.m, f, "bias_activation"));
  EXPECT_EQ(count(l.m[f], add_op), 0);
  EXPECT_EQ(count(l.m[f], relu_op), 0);
}

TEST(BiasActivation, LeavesAlone) {
  Layer l;
  // Values that others read too, a bias per row, a full tensor, one that n does not index alone.
  const Var y = matmul(l.x, l.w);
  l.b.result("y", y), l.b.result("a", y + l.bias), l.b.result("b", gelu(y));
  const Var column = l.b.param("column", f32({3, 1})), full = l.b.param("full", f32({2, 3, 6}));
  l.b.result("c", matmul(l.x * 2.0, l.w) + column);
  l.b.result("d", matmul(l.x * 3.0, l.w) + full);
  l.b.result("e", dot("b s k, k n -> b n s", l.x * 4.0, l.w) + l.b.param("s", f32({3})));
  l.b.result("g", tanh(matmul(l.x * 5.0, l.w)));
  // A factor that is no constant, and constants that are not all alike.
  const Var factor = l.b.param("factor", f32({}));
  l.b.result("h", matmul(l.x * 6.0, l.w) * broadcast(factor, Shape{2, 3, 6}));
  l.b.result("i", matmul(l.x * 7.0, l.w) * broadcast(l.bias, Shape{2, 3, 6}));
  EXPECT_FALSE(run(l.m, finish(l.b), "bias_activation"));
}

TEST(BiasActivation, AsksForAKernel) {
  Layer l;
  l.b.result("y", gelu(matmul(l.x, l.w) + l.bias));
  const FuncId f = finish(l.b);
  PassOptions o;
  const KernelsThat has(
      [](const OpCall& c) { return c.op != &dot_op || !c.attrs->has("activation"); });
  o.planning = &has;
  EXPECT_TRUE(run_checked(l.m, f, "bias_activation", o));
  EXPECT_EQ(count(l.m[f], gelu_op), 1);
  EXPECT_EQ(count(l.m[f], add_op), 0);
}

}  // namespace
}  // namespace tegula
