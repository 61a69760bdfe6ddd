// blockwise: what it takes, what it leaves alone, and that bits stay.
#include "tegula/ops/autodiff.h"
#include "tegula/ops/norm.h"
#include "tests/passes/passes.h"

namespace tegula {
namespace {

Type f32(Shape s) { return {DType::kF32, s}; }

struct Net {
  Shape rows = {4, 32};
  bool is_gated = false, has_bias = true, is_training = true, shows_hidden = false;
  bool is_norm_written_out = false;  // as where a target has no kernel for it
};

// y = x + ffn(norm(x)), twice, and the gradients of a loss.
FuncId network(Module& m, const Net& n) {
  constexpr int64_t kD = 8, kFf = 24;
  Builder b(m, "step");
  Shape shape = n.rows;
  shape.push_back(kD);
  Var x = b.param("x", f32(shape));
  std::vector<Var> weights;
  auto weight = [&](const char* name, Shape s) {
    weights.push_back(b.weight(cat(name, weights.size()), f32(s)));
    return weights.back();
  };
  Var hidden;
  for (int layer = 0; layer < 2; ++layer) {
    const Var scale = weight("norm", {kD});
    Var a;
    if (n.is_norm_written_out)
      a = x * rsqrt(reduce_mean(x * x, {x.rank() - 1}, true) + 1e-5) * scale;
    else
      a = layer_norm(x, scale, n.has_bias ? weight("shift", {kD}) : Var());
    Var h = matmul(a, weight("w", {kD, kFf}));
    if (n.has_bias) h = h + weight("b", {kFf});
    h = n.is_gated ? silu(h) * matmul(a, weight("up", {kD, kFf})) : gelu(h);
    hidden = h;
    Var y = matmul(h, weight("v", {kFf, kD}));
    if (n.has_bias) y = y + weight("c", {kD});
    x = x + y;
  }
  std::vector<int64_t> all;
  for (int d = 0; d < x.rank(); ++d) all.push_back(d);
  const Var loss = reduce_mean(x * x, all);
  b.result("loss", loss), b.result("x", x);
  if (n.shows_hidden) b.result("hidden", hidden);
  if (n.is_training) {
    const auto grads = grad(loss, weights);
    for (size_t i = 0; i < grads.size(); ++i) b.result(cat("g", i), grads[i]);
  }
  const FuncId f = finish(b);
  for (const char* pass : {"views", "fold", "algebra", "cse", "dce"}) run(m, f, pass);
  return f;
}

PassOptions blocks_of(int64_t rows) {
  PassOptions o;
  o.block_rows = rows;
  return o;
}

// The largest value that has the rows whole.
int64_t widest(const Function& f, int64_t n_rows) {
  int64_t most = 0;
  for (const Node& n : f.nodes) {
    if (n.op->is_view) continue;
    for (uint32_t i = 0; i < n.n_outputs; ++i)
      if (const int64_t size = f.type(n.output(i)).shape.numel(); size % n_rows == 0)
        most = std::max(most, size / n_rows);
  }
  return most;
}

TEST(Blockwise, KeepsBitsAndNothingWide) {
  for (const bool is_gated : {false, true})
    for (const bool is_training : {false, true})
      for (const Shape& rows : {Shape{128}, Shape{4, 32}, Shape{1, 128}, Shape{2, 4, 16}})
        for (const int64_t block : {16, 40, 64}) {
          Module m;
          const FuncId f =
              network(m, {.rows = rows, .is_gated = is_gated, .is_training = is_training});
          const Function before = m[f];
          ASSERT_TRUE(run(m, f, "blockwise", blocks_of(block)));
          expect_same_bits(m, before, m[f]);
          EXPECT_EQ(count(m[f], scan_op), is_training ? 4 : 2);
          EXPECT_EQ(widest(before, 128), 24);
          EXPECT_EQ(widest(m[f], 128), 8) << "block " << block;
          const Function once = m[f];
          EXPECT_FALSE(run(m, f, "blockwise", blocks_of(block)));
        }
}

// Its broadcasts name the rows, of which a block cuts two dims.
TEST(Blockwise, CutsNormsThatAreWrittenOut) {
  for (const bool is_training : {false, true}) {
    Module m;
    const FuncId f = network(m, {.is_training = is_training, .is_norm_written_out = true});
    const Function before = m[f];
    ASSERT_TRUE(run(m, f, "blockwise", blocks_of(16)));
    expect_same_bits(m, before, m[f]);
    EXPECT_GE(count(m[f], scan_op), 2);
  }
}

TEST(Blockwise, TakesNormAndResidualAlong) {
  Module m;
  const FuncId f = network(m, {});
  ASSERT_TRUE(run(m, f, "blockwise", blocks_of(32)));
  EXPECT_EQ(count(m[f], layer_norm_op), 0);
  for (const Node& n : m[f].nodes) {
    if (n.op == &add_op) EXPECT_NE(n.phase, Phase::kForward);
    if (n.op == &scan_op)
      EXPECT_EQ(n.attrs.i("n_carry"), n.phase == Phase::kForward ? 0 : 3);  // dw, db, dv
  }
}

TEST(Blockwise, LeavesAloneWhatItMust) {
  struct {
    const char* why;
    Net net;
    int64_t rows;
  } cases[] = {{"off", {}, 0},
               {"one block", {}, 128},
               {"fewer rows than a block may have", {}, 8},
               {"no divisor", {.rows = {127}}, 64},
               {"too small for auto", {}, PassOptions::kAutoBlock}};
  for (const auto& c : cases) {
    Module m;
    const FuncId f = network(m, c.net);
    EXPECT_FALSE(run(m, f, "blockwise", blocks_of(c.rows))) << c.why;
  }
  // Hidden activations that are a result stay; the other layer's go.
  Module m;
  const FuncId f = network(m, {.shows_hidden = true});
  const Function before = m[f];
  EXPECT_TRUE(run(m, f, "blockwise", blocks_of(32)));
  EXPECT_EQ(count(m[f], scan_op), 2);
  expect_same_bits(m, before, m[f]);
}

TEST(Blockwise, RowsOfUnknownNumberStayWhole) {
  Module m;
  const Dim s = m.add_symbol("s", 64);
  Builder b(m, "f");
  const Var x = b.param("x", f32({s, 8})), w = b.weight("w", f32({8, 24})),
            v = b.weight("v", f32({24, 8}));
  b.result("y", matmul(gelu(matmul(x, w)), v));
  const FuncId f = finish(b);
  EXPECT_FALSE(run(m, f, "blockwise", blocks_of(16)));
}

// A weight whose dims are those of the rows is no activation.
TEST(Blockwise, WeightsShapedLikeRows) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", f32({24, 32, 8})), w = b.weight("w", f32({8, 24})),
            v = b.weight("v", f32({24, 8})), u = b.weight("u", f32({24, 32}));
  const Var h = tanh(matmul(x, w));
  const Var y = matmul(h + matmul(h, matmul(u, transpose(u, 0, 1))), v);
  b.result("y", y);
  const auto g = grad(reduce_sum(y * y, {0, 1, 2}), std::vector<Var>{w, v, u});
  for (size_t i = 0; i < g.size(); ++i) b.result(cat("g", i), g[i]);
  const FuncId f = finish(b);
  for (const char* pass : {"views", "fold", "algebra", "cse", "dce"}) run(m, f, pass);
  const Function before = m[f];
  EXPECT_TRUE(run(m, f, "blockwise", blocks_of(64)));
  PassOptions one_chain;
  one_chain.mode = Mode::kFast;
  Function reference = before;
  m[f] = reference;
  run(m, f, "one_chain", one_chain);
  reference = m[f];
  EXPECT_TRUE(run(m, f, "blockwise", blocks_of(64)));
  expect_same_bits(m, reference, m[f]);
}

}  // namespace
}  // namespace tegula
