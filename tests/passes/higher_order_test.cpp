// Derivatives compose and survive the passes: a Hessian-vector product through attention, which has
// no forward rule for its gradient and is differentiated through its decomposition.
#include <cmath>

#include "tegula/ops/attention.h"
#include "tegula/ops/autodiff.h"
#include "tegula/ops/norm.h"
#include "tegula/runtime/compile.h"
#include "tests/passes/passes.h"

namespace tegula {
namespace {

constexpr int64_t kB = 1, kS = 5, kD = 8;
const Shape kShape{kB, kS, kD};

// A block's first half, and a loss: ½|x + attention(norm(x) w) v|², with no symmetry left.
Var block_loss(Builder& b, Var x, DType t) {
  const Var w = b.weight("w", {t, {kD, 3 * kD}}), v = b.weight("v", {t, {kD, kD}});
  const Var qkv = matmul(rms_norm(x, b.weight("gain", {t, {kD}}), 1e-5), w);
  auto head = [&](int i) { return reshape(slice(qkv, 2, kD * i, kD), {kB, kS, 2, kD / 2}); };
  AttentionOptions o;
  o.is_causal = true;
  const Var y = x + matmul(reshape(attention(head(0), head(1), head(2), o).o, kShape), v);
  return reduce_sum(y * y * y, {0, 1, 2});
}

// gradient(x), and its derivative along t: the Hessian times t.
FuncId hessian_vector(Module& m, DType dtype) {
  Builder b(m, "hvp");
  const Var x = b.param("x", {dtype, kShape}), t = b.param("t", {dtype, kShape});
  const Var xs[] = {x}, ts[] = {t};
  const Var g = grad(block_loss(b, x, dtype), xs)[0];
  const Var gs[] = {g};
  b.result("g", g);
  b.result("h", pushforward(b, gs, xs, ts)[0]);
  return finish(b);
}

std::vector<HostTensor> oracle(const Module& m, FuncId f, const std::vector<HostTensor>& in) {
  auto out = interpret(m, m[f], in, Arithmetic::kOracle, {});
  EXPECT_TRUE(out.ok()) << out.error().to_string();
  return std::move(*out);
}

TEST(HigherOrder, HessianThroughAttention) {
  Module m;
  const FuncId f = hessian_vector(m, DType::kF64);
  EXPECT_EQ(count(m[f], attention_op), 1);
  auto in = random_inputs(m, m[f], 1);
  const auto at = oracle(m, f, in);
  // Central differences of the gradient: error O(h²) + O(ε/h).
  const double h = 1e-5;
  auto shifted = [&](double by) {
    auto moved = in;
    for (int64_t i = 0; i < moved[0].numel(); ++i) moved[0].put(i, in[0].at(i) + by * in[1].at(i));
    return oracle(m, f, moved);
  };
  const auto plus = shifted(h), minus = shifted(-h);
  double size = 0;
  for (int64_t i = 0; i < at[1].numel(); ++i) size = std::max(size, std::abs(at[1].at(i)));
  EXPECT_GT(size, 1);
  for (int64_t i = 0; i < at[1].numel(); ++i)
    EXPECT_NEAR(at[1].at(i), (plus[0].at(i) - minus[0].at(i)) / (2 * h), 1e-6 * size) << i;
  // It is symmetric: <u, H t> = <t, H u>.
  auto other = in;
  for (int64_t i = 0; i < other[1].numel(); ++i) other[1].put(i, std::sin(3.0 * i + 1));
  const auto along = oracle(m, f, other);
  double uht = 0, thu = 0;
  for (int64_t i = 0; i < at[1].numel(); ++i)
    uht += other[1].at(i) * at[1].at(i), thu += in[1].at(i) * along[1].at(i);
  EXPECT_NEAR(uht, thu, 1e-10 * std::abs(uht) + 1e-10);
}

TEST(HigherOrder, ThePassesKeepIt) {
  Module m;
  const FuncId f = hessian_vector(m, DType::kF32);
  const Function before = m[f];
  const auto in = random_inputs(m, before, 2);
  const auto want = oracle(m, f, in);
  const auto naive = interpret(m, before, in, Arithmetic::kNaive, {});
  ASSERT_TRUE(naive.ok());
  const auto reports = run_passes(m, f, {.verify = true});
  ASSERT_TRUE(reports.ok()) << reports.error().to_string();
  const auto have = interpret(m, m[f], in, Arithmetic::kNaive, {});
  ASSERT_TRUE(have.ok()) << have.error().to_string();
  EXPECT_GT(count(m[f], fused_op), 0);
  for (size_t r = 0; r < want.size(); ++r) {
    double allowed = 0, apart = 0;
    for (int64_t i = 0; i < want[r].numel(); ++i) {
      allowed = std::max(allowed, std::abs((*naive)[r].at(i) - want[r].at(i)));
      apart = std::max(apart, std::abs((*have)[r].at(i) - want[r].at(i)));
    }
    EXPECT_LE(apart, 2 * allowed) << r;  // no worse than a naive f32 run of the graph as written
  }
}

}  // namespace
}  // namespace tegula
