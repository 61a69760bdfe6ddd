#include <cmath>

#include "tegula/ops/attention.h"
#include "tegula/ops/autodiff.h"
#include "tegula/ops/control.h"
#include "tegula/ops/norm.h"
#include "tests/passes/passes.h"

namespace tegula {
namespace {

Type f32(Shape s) { return {DType::kF32, s}; }

PassOptions bf16_options() {
  PassOptions o;
  o.compute_dtype = DType::kBF16;
  return o;
}

DType operand(const Function& f, const Node& n, size_t i) { return f.type(n.inputs[i]).dtype; }

// gelu(norm(x) w) v and its gradients, then plain gradient descent.
FuncId small_step(Module& m) {
  Builder b(m, "step");
  const Var x = b.param("x", f32({2, 6, 8}));
  const Var w = b.weight("w", f32({8, 16})), v = b.weight("v", f32({16, 8}));
  const Var gain = b.weight("gain", f32({8}));
  const Var y = matmul(gelu(matmul(layer_norm(x, gain, Var(), 1e-5), w)), v);
  const Var loss = reduce_mean(softmax(y) * y, {0, 1, 2});
  const auto g = grad(loss, std::vector{w, v, gain});
  b.set_phase(Phase::kUpdate);
  b.result("loss", loss);
  b.result("w", w - g[0] * 0.1), b.result("v", v - g[1] * 0.1);
  b.result("gain", gain - g[2] * 0.1);
  return finish(b);
}

// A value that was widened to be added to a bias, or put together, is not kept as f32: only casts
// read the sums, and nothing but a sum reads a concat as f32.
TEST(Autocast, BiasesAndJoinsKeepProductsNarrow) {
  Module m;
  Builder b(m, "step");
  const Var x = b.param("x", f32({2, 6, 8}));
  const Var w = b.weight("w", f32({8, 16})), v = b.weight("v", f32({32, 8}));
  const Var bias = b.weight("bias", f32({16}));
  const Var y = matmul(x, w) + bias;
  const Var both = concat(std::vector{y, y}, 2);
  const Var loss =
      reduce_mean(gelu(y), {0, 1, 2}) + reduce_mean(softmax(matmul(both, v)), {0, 1, 2});
  b.result("loss", loss);
  const FuncId id = finish(b);
  EXPECT_TRUE(run(m, id, "autocast", bf16_options()));
  const Function& f = m[id];
  int sums = 0, joins = 0;
  for (const Node& n : f.nodes) {
    if (n.op == &concat_op) {
      ++joins;
      EXPECT_EQ(operand(f, n, 0), DType::kBF16);
    }
    for (ValueId in : n.inputs) {
      const Node* from = f.producer(in);
      if (!from || from->op != &add_op || f.type(in).shape.rank() != 3) continue;
      ++sums;
      EXPECT_EQ(n.op, &cast_op);
    }
  }
  EXPECT_EQ(sums, 1);
  EXPECT_EQ(joins, 1);
}

// Weights side by side are weights: their product is narrow, and each of them is cast once.
TEST(Autocast, KnowsWeightsThatAreSideBySide) {
  Module m;
  Builder b(m, "merged");
  const Var x = b.param("x", f32({4, 8})), w = b.weight("w", f32({8, 6})),
            v = b.weight("v", f32({8, 2}));
  const Var y = dot("m k, k n -> m n", x, concat(std::vector{w, v}, 1));
  b.result("left", gelu(slice(y, 1, 0, 6)));
  b.result("right", gelu(slice(y, 1, 6, 2)));
  b.result("w alone", gelu(dot("m k, k n -> m n", x, w)));
  const FuncId f = finish(b);
  EXPECT_TRUE(run(m, f, "autocast", bf16_options()));
  int n_weights = 0;
  for (const Node& n : m[f].nodes) {
    if (n.op == &dot_op) EXPECT_EQ(m[f].type(n.output()).dtype, DType::kBF16);
    if (n.op == &concat_op) EXPECT_EQ(operand(m[f], n, 0), DType::kBF16);
    n_weights += n.op == &cast_op && m[f].producer(n.inputs[0]) == nullptr &&
                 m[f].params[m[f].values[n.inputs[0]].index].role == Role::kWeight;
  }
  EXPECT_EQ(n_weights, 2);
}

TEST(Autocast, DotsReadBf16AndAllElseStaysF32) {
  Module m;
  const FuncId f = small_step(m);
  const Function before = m[f];
  EXPECT_TRUE(run(m, f, "autocast", bf16_options()));
  EXPECT_EQ(count(m[f], dot_op), count(before, dot_op));
  int weight_casts = 0, f32_results = 0;
  for (const Node& n : m[f].nodes) {
    if (n.op == &dot_op) {
      EXPECT_EQ(operand(m[f], n, 0), DType::kBF16);
      EXPECT_EQ(operand(m[f], n, 1), DType::kBF16);
      f32_results += m[f].type(n.output()).dtype == DType::kF32;
    } else if (n.op == &cast_op) {
      weight_casts += !m[f].producer(n.inputs[0]);
    } else if (!n.op->is_view) {
      for (size_t i = 0; i < n.inputs.size(); ++i) EXPECT_NE(operand(m[f], n, i), DType::kBF16);
    }
  }
  EXPECT_EQ(weight_casts, 2);  // w and v: once for the forward and the backward part
  EXPECT_EQ(f32_results, 3);   // gradients of both, and what only the norm's gradient reads
  for (size_t r = 0; r < before.results.size(); ++r)
    EXPECT_EQ(m[f].type(m[f].results[r].value), before.type(before.results[r].value));
  EXPECT_FALSE(run(m, f, "autocast", bf16_options()));
}

TEST(Autocast, FollowsViewsToWhatIsRoundedAlready) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", f32({2, 6, 8}));
  const Var w = b.weight("w", f32({8, 24}));
  const Var qkv = matmul(x, w);
  auto head = [&](int i) { return reshape(slice(qkv, 2, 8 * i, 8), {2, 6, 2, 4}); };
  b.result("o", attention(head(0), head(1), head(2), {}).o);
  const FuncId f = finish(b);
  EXPECT_TRUE(run(m, f, "autocast", bf16_options()));
  EXPECT_EQ(operand(m[f], *only(m[f], attention_op), 2), DType::kBF16);
  EXPECT_EQ(count(m[f], cast_op), 3);  // x, w, and the result: nothing between
}

TEST(Autocast, ErrsByRoundingAlone) {
  Module m;
  Builder b(m, "f");
  const int64_t k = 40;
  const Var x = b.param("x", f32({6, k})), w = b.weight("w", f32({k, 5}));
  b.result("y", matmul(x, w)), b.result("bound", matmul(abs(x), abs(w)));
  const FuncId f = finish(b);
  const Function before = m[f];
  EXPECT_TRUE(run(m, f, "autocast", bf16_options()));
  const auto in = random_inputs(m, before, 3);
  const auto exact = interpret(m, before, in, Arithmetic::kNaive, {}),
             cast = interpret(m, m[f], in, Arithmetic::kNaive, {});
  ASSERT_TRUE(exact.ok() && cast.ok());
  const double u = std::ldexp(1, -9);  // of bf16: two operands and the result round
  int differ = 0;
  for (int64_t i = 0; i < (*exact)[0].numel(); ++i) {
    const double y = (*exact)[0].at(i), got = (*cast)[0].at(i);
    differ += y != got;
    EXPECT_LE(std::abs(got - y), 3.1 * u * (*exact)[1].at(i));
  }
  EXPECT_GT(differ, 0);
}

// A recurrent layer: its weight is cast once, before the loop, and what is rounded already is given
// to it so.
TEST(Autocast, WorksWithinBodies) {
  Module m;
  Builder b(m, "f");
  const Var h = b.param("h", f32({2, 8})), x = b.param("x", f32({5, 2, 8}));
  const Var w = b.weight("w", f32({8, 8})), v = b.weight("v", f32({8, 8}));
  const auto out = scan(b, {h}, {matmul(x, v)}, {w}, [](Builder&, Vars c, Vars s, Vars i) {
    const Var next = tanh(matmul(c[0], i[0]) + s[0]);
    return StepResult{{next}, {next * next}};
  });
  b.result("y", out.ys[0]), b.result("w", matmul(x, w));
  const FuncId f = finish(b);
  const Function before = m[f];
  EXPECT_TRUE(run(m, f, "autocast", bf16_options()));
  const Node& loop = *only(m[f], scan_op);
  EXPECT_EQ(operand(m[f], loop, 0), DType::kF32);   // the carry
  EXPECT_EQ(operand(m[f], loop, 1), DType::kBF16);  // a product that was rounded
  EXPECT_EQ(operand(m[f], loop, 2), DType::kBF16);
  const Function& body = m[loop.regions[0]];
  const Node& dot = *only(body, dot_op);
  EXPECT_EQ(operand(body, dot, 0), DType::kBF16);
  EXPECT_EQ(body.type(dot.output()).dtype, DType::kBF16);  // a weight's, outside it is one
  for (const Node& n : body.nodes)
    if (n.op == &cast_op) EXPECT_NE(body.type(n.inputs[0]).shape, Shape({8, 8}));
  int casts_of_w = 0;
  for (const Node& n : m[f].nodes)
    casts_of_w += n.op == &cast_op && n.inputs[0] == m[f].params[2].value;
  EXPECT_EQ(casts_of_w, 1);  // for the loop and for the product outside
  EXPECT_EQ(m[f].type(m[f].results[0].value), before.type(before.results[0].value));
  EXPECT_FALSE(run(m, f, "autocast", bf16_options()));
}

TEST(Autocast, BranchesThatDifferKeepTheirOperands) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", f32({4, 8})), w = b.weight("w", f32({8, 8}));
  const Var go = b.param("go", {DType::kBool, {}});
  const auto out = cond(
      go, {x, w}, [](Builder&, Vars v) { return std::vector<Var>{matmul(v[0], v[1])}; },
      [](Builder&, Vars v) { return std::vector<Var>{matmul(exp(v[0]), v[1])}; });
  b.result("y", out[0]);
  const FuncId f = finish(b);
  EXPECT_TRUE(run(m, f, "autocast", bf16_options()));
  const Node& n = *only(m[f], cond_op);
  EXPECT_EQ(operand(m[f], n, 1), DType::kF32);   // one branch reads it in f32
  EXPECT_EQ(operand(m[f], n, 2), DType::kBF16);  // both only cast it
  for (FuncId r : n.regions) EXPECT_EQ(operand(m[r], *only(m[r], dot_op), 0), DType::kBF16);
}

TEST(Autocast, LeavesAlone) {
  Module m;
  const FuncId f = small_step(m);
  EXPECT_FALSE(run(m, f, "autocast"));
  // An op that has no kernel in bf16.
  PassOptions o = bf16_options();
  const KernelsThat of_f32([](const OpCall& c) { return c.in[0].dtype == DType::kF32; });
  o.planning = &of_f32;
  EXPECT_FALSE(run(m, f, "autocast", o));
  // Doubles, and the update.
  Builder b(m, "g");
  const Var x = b.param("x", {DType::kF64, {3, 4}}), y = b.param("y", {DType::kF64, {4, 5}});
  const Var p = b.param("p", f32({3, 4})), q = b.param("q", f32({4, 5}));
  b.result("z", matmul(x, y));
  b.set_phase(Phase::kUpdate);
  b.result("r", matmul(p, q));
  EXPECT_FALSE(run(m, finish(b), "autocast", bf16_options()));
}

}  // namespace
}  // namespace tegula
