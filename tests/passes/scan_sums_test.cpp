#include <cmath>

#include "tegula/ops/autodiff.h"
#include "tegula/ops/control.h"
#include "tegula/ops/layers.h"
#include "tests/passes/passes.h"

namespace tegula {
namespace {

// The gradients of an LSTM over 6 steps, in f64.
FuncId lstm_step(Module& m) {
  Builder b(m, "f");
  const Var x = b.param("x", {DType::kF64, {2, 6, 3}});
  const LstmWeights w = {b.weight("w_x", {DType::kF64, {3, 64}}),
                         b.weight("w_h", {DType::kF64, {16, 64}}),
                         b.weight("bias", {DType::kF64, {64}})};
  Var loss = lstm(x, w).y;
  loss = reduce_sum(loss * loss, {0, 1, 2});
  const Var wrt[] = {x, w.w_x, w.w_h, w.bias};
  const auto grads = grad(loss, wrt);
  for (size_t i = 0; i < grads.size(); ++i) b.result(cat("g", i), grads[i]);
  return finish(b);
}

// s = s + a(h) · x over the steps of h = tanh(h + x), and a sum that no carry has a part in.
FuncId two_sums(Module& m) {
  Builder b(m, "f");
  const Type t = {DType::kF64, {2, 2}};
  const Var h = b.param("h", t), s = b.param("s", t), p = b.param("p", t);
  const Var x = b.param("x", {DType::kF64, {5, 2, 2}});
  const auto out = scan(b, {h, s, p}, {x}, {}, [](Builder&, Vars c, Vars xs, Vars) -> StepResult {
    return {{tanh(c[0] + xs[0]), c[1] + matmul(sin(c[0]), xs[0]), c[2] + matmul(xs[0], xs[0])}, {}};
  });
  for (int i = 0; i < 3; ++i) b.result(cat("r", i), out.carry[static_cast<size_t>(i)]);
  return finish(b);
}

int n_carry(const Function& f, size_t which) {
  for (const Node& n : f.nodes)
    if (n.op == &scan_op && which-- == 0) return static_cast<int>(n.attrs.i("n_carry"));
  return -1;
}

// Sums go another way: values, not bits.
void expect_same_values(const Module& before, const Module& after, FuncId f) {
  const auto in = random_inputs(before, before[f], 3);
  const auto want = interpret(before, before[f], in), have = interpret(after, after[f], in);
  ASSERT_TRUE(want.ok() && have.ok());
  for (size_t r = 0; r < want->size(); ++r)
    for (int64_t i = 0; i < (*want)[r].numel(); ++i)
      ASSERT_NEAR((*have)[r].at(i), (*want)[r].at(i), 1e-12 * (1 + std::abs((*want)[r].at(i))));
}

TEST(ScanSums, AWeightsGradientIsOneProduct) {
  Module m;
  const FuncId f = lstm_step(m);
  EXPECT_TRUE(run(m, f, "merge_scans"));
  const Module before = m;
  ASSERT_EQ(n_carry(m[f], 1), 3);  // of h, c and the weight
  const int n_dots = count(m[f], dot_op);
  EXPECT_TRUE(run(m, f, "scan_sums"));
  EXPECT_EQ(n_carry(m[f], 1), 2);
  EXPECT_EQ(count(m[f], dot_op), n_dots + 1);
  expect_same_values(before, m, f);
  EXPECT_FALSE(run(m, f, "scan_sums"));
}

TEST(ScanSums, WhatNoCarryHasAPartInStays) {
  Module m;
  const FuncId f = two_sums(m);
  const Module before = m;
  EXPECT_TRUE(run(m, f, "scan_sums"));
  EXPECT_EQ(n_carry(m[f], 0), 2);
  expect_same_values(before, m, f);
}

TEST(ScanSums, UnderABudgetNothingMoreIsStacked) {
  Module m;
  const FuncId f = two_sums(m);
  PassOptions budget;
  budget.remat = Remat::kBudget;
  EXPECT_FALSE(run(m, f, "scan_sums", budget));  // sin(h) is no stack yet
  Module lstm_module;
  const FuncId g = lstm_step(lstm_module);
  EXPECT_TRUE(run(lstm_module, g, "merge_scans"));
  EXPECT_TRUE(run(lstm_module, g, "scan_sums", budget));
}

// The forward loop gives its products, so that the backward one has none of them.
TEST(ScanSums, ProductsOfCarriesAreKept) {
  Module m;
  const FuncId f = lstm_step(m);
  EXPECT_TRUE(run(m, f, "merge_scans"));
  ASSERT_EQ(count(m[f], scan_op), 2);
  size_t which = 0;
  for (const Node& n : m[f].nodes)
    if (n.op == &scan_op) {
      (void)run(m, n.regions[0], "dce");
      // Backward: for h and for the weight.
      EXPECT_EQ(count(m[n.regions[0]], dot_op), which++ == 0 ? 1 : 2);
    }
}

}  // namespace
}  // namespace tegula
