#include "tegula/ops/autodiff.h"
#include "tegula/ops/norm.h"
#include "tests/passes/passes.h"

namespace tegula {
namespace {

// A residual block around a norm, and its gradient; twice: x + f(norm(x)).
FuncId block(Module& m, DType t, bool read_elsewhere, bool bias) {
  Builder b(m, "step");
  const Var x = b.param("x", {t, {3, 5, 7}});
  const Var w = b.weight("w", {t, {7}});
  const Var shift = bias ? b.weight("b", {t, {7}}) : Var();
  const Var h = x + sin(layer_norm(x, w, shift));
  const Var y = h + sin(layer_norm(h, w, shift));
  const Var loss = reduce_sum(cast(y * y, DType::kF32), {0, 1, 2});
  const auto g = grad(loss, std::vector{x, w});
  b.result("dx", g[0]), b.result("dw", g[1]);
  if (read_elsewhere)
    for (const Node& n : b.function().nodes)
      if (n.op == &layer_norm_bwd_op) {
        b.result("norm's", Var(&b, n.output(0)));
        break;
      }
  return finish(b);
}

int with_residual(const Function& f) {
  int n = 0;
  for (const Node& node : f.nodes) n += node.attrs.flag("residual");
  return n;
}

TEST(NormResidual, TakesTheGradientAroundANorm) {
  for (const bool bias : {false, true}) {
    Module m;
    const FuncId f = block(m, DType::kF32, false, bias);
    const int adds = count(m[f], add_op);
    EXPECT_TRUE(run_checked(m, f, "norm_residual"));
    EXPECT_EQ(with_residual(m[f]), 2);
    EXPECT_EQ(count(m[f], add_op), adds - 2);
  }
}

TEST(NormResidual, LeavesWhatOthersRead) {
  Module m;
  const FuncId f = block(m, DType::kF32, true, false);
  EXPECT_TRUE(run_checked(m, f, "norm_residual"));
  EXPECT_EQ(with_residual(m[f]), 1);
}

TEST(NormResidual, LeavesWhatRoundsTwice) {
  Module m;
  EXPECT_FALSE(run_checked(m, block(m, DType::kBF16, false, false), "norm_residual"));
}

}  // namespace
}  // namespace tegula
