#include "tegula/ops/autodiff.h"
#include "tests/passes/passes.h"

namespace tegula {
namespace {

// gelu in f32 of a product in bf16, and its gradient: the backward part reads the product.
FuncId gelu_of_bf16(Module& m, bool with_gradient) {
  Builder b(m, "step");
  const Var x = b.param("x", {DType::kBF16, {32, 48}});
  const Var y = gelu(cast(x, DType::kF32));
  const Var low = cast(y, DType::kBF16);
  b.result("y", low);
  if (with_gradient) {
    const Var loss = reduce_sum(cast(low, DType::kF32) * y, {0, 1});
    b.result("dx", grad(loss, std::vector{x})[0]);
  }
  return finish(b);
}

int casts_in(const Function& f, Phase phase) {
  int n = 0;
  for (const Node& node : f.nodes)
    n += node.op == &cast_op && node.phase == phase && f.type(node.output()).dtype == DType::kF32 &&
         f.producer(node.inputs[0]) == nullptr;
  return n;
}

TEST(WidenAgain, CastsWhereTheBackwardPartReads) {
  Module m;
  const FuncId f = gelu_of_bf16(m, true);
  EXPECT_EQ(casts_in(m[f], Phase::kBackward), 0);
  const Function before = m[f];
  EXPECT_TRUE(run(m, f, "widen_again"));
  expect_same_bits(m, before, m[f]);
  EXPECT_EQ(casts_in(m[f], Phase::kForward), 1);
  EXPECT_EQ(casts_in(m[f], Phase::kBackward), 1);
  // Nothing of f32 crosses but by way of x.
  for (const Node& n : m[f].nodes)
    if (n.phase == Phase::kBackward && n.op != &cast_op)
      for (ValueId v : n.inputs)
        if (const Node* from = m[f].producer(v); from && from->op == &cast_op)
          EXPECT_NE(from->phase, Phase::kForward) << n.op->name;
  EXPECT_FALSE(run(m, f, "widen_again"));
}

// A norm's scale in 16 bits, of several rows: no kernel casts it alone.
TEST(WidenAgain, WhatIsRepeatedIsCastWhereItIsRead) {
  Module m;
  Builder b(m, "norm");
  const Var x = b.param("x", {DType::kBF16, {10, 768}}), w = b.param("w", {DType::kBF16, {768}});
  b.result("y", cast(cast(x, DType::kF32) * cast(w, DType::kF32), DType::kBF16));
  const FuncId f = finish(b);
  const Function before = m[f];
  EXPECT_TRUE(run(m, f, "widen_again"));
  expect_same_bits(m, before, m[f]);
  EXPECT_FALSE(run(m, f, "widen_again"));
  EXPECT_TRUE(run(m, f, "fuse"));
  EXPECT_EQ(m[f].nodes.size(), 1u);
}

TEST(WidenAgain, LeavesOnePhaseAlone) {
  Module m;
  EXPECT_FALSE(run(m, gelu_of_bf16(m, false), "widen_again"));
}

}  // namespace
}  // namespace tegula
