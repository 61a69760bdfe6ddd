#include "tegula/ops/autodiff.h"
#include "tegula/ops/control.h"
#include "tegula/ops/layers.h"
#include "tests/passes/passes.h"

namespace tegula {
namespace {

// The loss of an LSTM over 5 steps, and its gradients.
FuncId lstm_step(Module& m) {
  Builder b(m, "f");
  const Var x = b.param("x", {DType::kF32, {2, 5, 3}});
  const LstmWeights w = {b.weight("w_x", {DType::kF32, {3, 16}}),
                         b.weight("w_h", {DType::kF32, {4, 16}}),
                         b.weight("bias", {DType::kF32, {16}})};
  const Recurrent r = lstm(x, w);
  Var loss = r.y * r.y;
  while (loss.rank() > 0) loss = reduce_sum(loss, {loss.rank() - 1});
  const Var wrt[] = {x, w.w_x, w.w_h, w.bias};
  const auto grads = grad(loss, wrt);
  b.result("loss", loss);
  for (size_t i = 0; i < grads.size(); ++i) b.result(cat("g", i), grads[i]);
  return finish(b);
}

TEST(MergeScans, ALoopIsNotRunAgainForItsGradient) {
  Module m;
  const FuncId f = lstm_step(m);
  ASSERT_EQ(count(m[f], scan_op), 3);  // the loop, the same one saving its carries, the gradient's
  EXPECT_TRUE(run_checked(m, f, "merge_scans"));
  EXPECT_EQ(count(m[f], scan_op), 2);
}

TEST(MergeScans, SavesAreJoined) {
  Module m;
  Builder b(m, "f");
  const Type t = {DType::kF32, {3}};
  const Var x = b.param("x", {DType::kF32, {4, 3}}), c = b.param("c", t), d = b.param("d", t);
  Builder body(m, "body");
  const Var c0 = body.param("c", t), d0 = body.param("d", t), x0 = body.param("x", t);
  body.result("c", c0 + x0), body.result("d", d0 * c0), body.result("y", d0 - x0);
  const FuncId region = *body.finish_into_module();
  const auto loop = [&](std::vector<int64_t> saves, Var of) {
    const Attrs attrs = {{"n_carry", int64_t{2}},
                         {"n_xs", int64_t{1}},
                         {"length", std::vector<Dim>{4}},
                         {"saves", std::move(saves)}};
    const Var in[] = {c, d, of};
    return b.emit_n(scan_op, attrs, in, {region});
  };
  int at = 0;
  for (const auto& out : {loop({1}, x), loop({}, x), loop({0, 1}, x), loop({0}, x + x)})
    for (const Var& v : out) b.result(cat("r", at++), v);
  const FuncId f = finish(b);
  EXPECT_TRUE(run_checked(m, f, "merge_scans"));
  EXPECT_EQ(count(m[f], scan_op), 2);  // another operand, another loop
}

}  // namespace
}  // namespace tegula
