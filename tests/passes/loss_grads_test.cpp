#include "tegula/ops/autodiff.h"
#include "tegula/ops/linear_cross_entropy.h"
#include "tests/passes/passes.h"

namespace tegula {
namespace {

struct Step {
  Module m;
  FuncId f = kNone;
};

// A loss of a linear layer and its gradients; squared, the gradient waits for the loss.
Step make(bool is_squared, bool is_symbolic = false) {
  Step s;
  const Dim batch = is_symbolic ? s.m.add_symbol("batch", 2) : Dim(2);
  Builder b(s.m, "step");
  const Var x = b.param("x", {DType::kF32, {batch, 3, 4}});
  const Var w = b.weight("w", {DType::kF32, {5, 4}});
  const Var ids = b.param("targets", {DType::kI32, {batch, 3}});
  const Var h = x * 2.0;
  Var loss = cross_entropy_loss(h, w, ids);
  if (is_squared) loss = loss * loss;
  b.result("loss", loss);
  const auto g = grad(loss, std::vector{x, w});
  b.result("dx", g[0]), b.result("dw", g[1]);
  s.f = finish(b);
  run(s.m, s.f, "dce");
  return s;
}

TEST(LossGrads, JoinsALossWithItsGradient) {
  Step s = make(false);
  EXPECT_TRUE(run_checked(s.m, s.f, "loss_grads"));
  EXPECT_EQ(count(s.m[s.f], linear_cross_entropy_grads_op), 1);
  EXPECT_EQ(count(s.m[s.f], linear_cross_entropy_op), 0);
  EXPECT_EQ(count(s.m[s.f], linear_cross_entropy_bwd_op), 0);
}

TEST(LossGrads, NotWhereTheGradientNeedsTheLoss) {
  Step s = make(true);
  EXPECT_FALSE(run(s.m, s.f, "loss_grads"));
}

// Each gradient could be joined with its loss, but then either would come before the other.
TEST(LossGrads, NotWhereTwoGradientsNeedEachOthersLoss) {
  for (const bool is_product : {false, true}) {
    Module m;
    Builder b(m, "step");
    const Var ids = b.param("targets", {DType::kI32, {2, 3}});
    std::vector<Var> params, losses;
    for (const char* name : {"1", "2"}) {
      params.push_back(b.param(cat("x", name), {DType::kF32, {2, 3, 4}}));
      params.push_back(b.weight(cat("w", name), {DType::kF32, {5, 4}}));
      losses.push_back(cross_entropy_loss(params.end()[-2] * 2.0, params.back(), ids));
    }
    const Var loss = is_product ? losses[0] * losses[1] : losses[0] + losses[1];
    b.result("loss", loss);
    const auto g = grad(loss, params);
    for (size_t i = 0; i < g.size(); ++i) b.result(cat("grad.", i), g[i]);
    const FuncId f = finish(b);
    run(m, f, "dce");
    EXPECT_EQ(run_checked(m, f, "loss_grads"), !is_product);
    EXPECT_EQ(count(m[f], linear_cross_entropy_grads_op), is_product ? 0 : 2);
  }
}

// Found in one pass over the graph: there are 2^60 paths from the scale to its first node.
TEST(LossGrads, CotangentsOfManyPaths) {
  Module m;
  Builder b(m, "step");
  const Var x = b.param("x", {DType::kF32, {3, 4}}), w = b.weight("w", {DType::kF32, {5, 4}});
  const Var first = b.param("scale", {DType::kF32, {}});
  const Var loss = cross_entropy_loss(x * 2.0, w, b.param("targets", {DType::kI32, {3}}));
  Var scale = first * 2.0;
  for (int i = 0; i < 60; ++i) scale = scale + scale;
  b.result("loss", loss);
  const auto g = grad(loss * scale, std::vector{x, w});
  b.result("dx", g[0]), b.result("dw", g[1]);
  const FuncId f = finish(b);
  run(m, f, "dce");
  EXPECT_TRUE(run(m, f, "loss_grads"));
}

TEST(LossGrads, NotOfSymbolicShapes) {
  Step s = make(false, true);
  EXPECT_FALSE(run(s.m, s.f, "loss_grads"));
}

TEST(LossGrads, NotUnderABudgetOfMemory) {
  Step s = make(false);
  PassOptions options;
  options.memory_bytes = int64_t{1} << 40;
  EXPECT_FALSE(run(s.m, s.f, "loss_grads", options));
  options = {};
  options.remat = Remat::kSqrt;
  EXPECT_FALSE(run(s.m, s.f, "loss_grads", options));
}

TEST(LossGrads, NotWithoutAKernel) {
  Step s = make(false);
  PassOptions options;
  const KernelsThat none([](const OpCall&) { return false; });
  options.planning = &none;
  EXPECT_FALSE(run(s.m, s.f, "loss_grads", options));
}

}  // namespace
}  // namespace tegula
