#include "tegula/ops/autodiff.h"
#include "tests/passes/passes.h"

namespace tegula {
namespace {

Type f32(Shape s) { return {DType::kF32, s}; }

// y = f(x w1) w2, with gradients; f is elementwise.
template <class F>
FuncId layer(Module& m, F f) {
  Builder b(m, "step");
  const Var x = b.param("x", f32({32, 16}));
  std::vector<Var> w = {b.weight("w", f32({16, 24})), b.weight("u", f32({16, 24})),
                        b.weight("v", f32({24, 16}))};
  const Var y = matmul(f(matmul(x, w[0]), matmul(x, w[1])), w[2]);
  const auto g = grad(reduce_mean(y * y, {0, 1}), w);
  for (size_t i = 0; i < g.size(); ++i) b.result(cat("g", i), g[i]);
  const FuncId id = finish(b);
  for (const char* pass : {"views", "fold", "algebra", "cse", "dce"}) run(m, id, pass);
  return id;
}
FuncId swiglu(Module& m) {
  return layer(m, [](Var g, Var u) { return silu(g) * u; });
}

// A machine that does `operations` while it moves a byte, and caches nothing.
struct Machine {
  Target target;
  std::vector<Recomputed> chosen;
  PassOptions options;
  explicit Machine(double operations_a_byte) {
    target.caches = {{0, 0, 0}};
    target.bytes_per_s = 1e9;
    target.f32_flops_per_s = target.bf16_flops_per_s = 1e9 * operations_a_byte;
    options.target = &target, options.recomputed = &chosen;
  }
};

// Bytes that the fused function's nodes read and write.
int64_t moved(Module m, FuncId f) {
  run(m, f, "dce");
  run(m, f, "fuse");
  int64_t total = 0;
  for (const Node& n : m[f].nodes) {
    const auto in = m[f].input_types(n), out = m[f].output_types(n);
    const Bytes b = bytes_of({n.op, &n.attrs, in, out, &m, n.regions});
    total += b.read + b.written;
  }
  return total;
}

int backward(const Function& f, const OpDef& op) {
  int n = 0;
  for (const Node& node : f.nodes) n += node.op == &op && node.phase == Phase::kBackward;
  return n;
}

TEST(Recompute, WhereBytesTakeLongerThanOperations) {
  Module m;
  const FuncId f = swiglu(m);
  const Function before = m[f];
  const int64_t bytes = moved(m, f);
  Machine slow_memory(1000);
  EXPECT_TRUE(run(m, f, "recompute", slow_memory.options));
  expect_same_bits(m, before, m[f]);
  EXPECT_EQ(backward(before, silu_op), 0);
  EXPECT_EQ(backward(m[f], silu_op), 1);
  ASSERT_EQ(slow_memory.chosen.size(), 1u);
  const Recomputed& r = slow_memory.chosen[0];
  constexpr int64_t kBytes = 32 * 24 * 4;
  EXPECT_EQ(r.op, "silu");
  EXPECT_EQ(r.bytes, kBytes);
  EXPECT_GT(r.saved_s, r.paid_s);
  // silu(g) is no longer written by the forward part, nor read by two loops of the backward one. g
  // is read instead of it; but the two are one loop, and what both of them read is read once.
  EXPECT_DOUBLE_EQ(r.saved_s, 2 * kBytes / 1e9);
  EXPECT_LE(moved(m, f), bytes - 3 * kBytes);
  EXPECT_FALSE(run(m, f, "recompute", slow_memory.options));
}

TEST(Recompute, NotWhereOperationsTakeLonger) {
  Module m;
  const FuncId f = swiglu(m);
  Machine slow_core(1);
  EXPECT_FALSE(run(m, f, "recompute", slow_core.options));
  EXPECT_TRUE(slow_core.chosen.empty());
}

TEST(Recompute, NotWhatCachesHold) {
  Module m;
  const FuncId f = swiglu(m);
  Machine cached(1000);
  cached.target.caches.bytes[CacheSizes::kLevels - 1] = 1 << 20;
  EXPECT_FALSE(run(m, f, "recompute", cached.options));
}

TEST(Recompute, NotUnderABudget) {
  Module m;
  const FuncId f = swiglu(m);
  Machine slow_memory(1000);
  slow_memory.options.memory_bytes = 1 << 20;
  EXPECT_FALSE(run(m, f, "recompute", slow_memory.options));
  slow_memory.options.memory_bytes = 0, slow_memory.options.remat = Remat::kSqrt;
  EXPECT_FALSE(run(m, f, "recompute", slow_memory.options));
}

// A value that products read or wrote lies in memory anyway.
TEST(Recompute, NotWhatProductsRead) {
  Module m;
  const FuncId f = layer(m, [](Var g, Var u) { return gelu(g + u); });
  const Function before = m[f];
  Machine slow_memory(1000);
  run(m, f, "recompute", slow_memory.options);
  EXPECT_EQ(backward(m[f], gelu_op), backward(before, gelu_op));
  for (const Recomputed& r : slow_memory.chosen) EXPECT_NE(r.op, "gelu");
}

// A chain is computed again from what is kept, all of it; not one that is longer than eight.
TEST(Recompute, Chains) {
  for (const int length : {2, 7, 8}) {
    Module m;
    const FuncId f = layer(m, [&](Var g, Var u) {
      Var x = g * g;  // its gradient reads g
      for (int i = 1; i < length; ++i) x = floor(x * 0.5 + 1.0 * i) - x;
      return x * u;
    });
    const Function before = m[f];
    Machine slow_memory(1000);
    const bool changed = run(m, f, "recompute", slow_memory.options);
    SCOPED_TRACE(length);
    EXPECT_EQ(changed, length < 3);
    expect_same_bits(m, before, m[f]);
    if (changed) {
      ASSERT_EQ(slow_memory.chosen.size(), 1u);
      EXPECT_GT(backward(m[f], floor_op), 0);
    }
  }
}

// Bytes of the forward part's values that the backward part reads, each once.
int64_t waiting(const Function& f) {
  std::vector<uint8_t> seen(f.values.size(), 0);
  int64_t total = 0;
  for (const Node& n : f.nodes) {
    if (n.phase == Phase::kForward) continue;
    for (ValueId v : n.inputs) {
      while (f.producer(v) && f.producer(v)->op->is_view) v = f.producer(v)->inputs[0];
      const Node* maker = f.producer(v);
      if (!maker || maker->phase != Phase::kForward || seen[v]++) continue;
      if (maker->op != &constant_op) total += f.type(v).bytes();
    }
  }
  return total;
}

// Blocks x += norm(x) w: what a norm normalises is written anyway, for the sum after the product,
// so that waits, and not the normalised rows.
TEST(Recompute, ANormsOperandWaitsInsteadOfItsRows) {
  Module m;
  Builder b(m, "step");
  Var x = b.param("x", f32({256, 64}));
  std::vector<Var> w;
  for (int k = 0; k < 3; ++k) {
    w.push_back(b.weight(cat("w", k), f32({64, 64})));
    const Var centred = x - reduce_mean(x, {1}, true);
    const Var rows = centred * rsqrt(reduce_mean(centred * centred, {1}, true) + 1e-5);
    x = x + matmul(rows, w.back());
  }
  const auto g = grad(reduce_mean(x * x, {0, 1}), w);
  for (size_t i = 0; i < g.size(); ++i) b.result(cat("g", i), g[i]);
  const FuncId f = finish(b);
  for (const char* pass : {"views", "fold", "algebra", "cse", "dce"}) run(m, f, pass);
  const Function before = m[f];
  const int64_t bytes = moved(m, f);
  Machine slow_memory(1000);
  EXPECT_TRUE(run(m, f, "recompute", slow_memory.options));
  expect_same_bits(m, before, m[f]);
  constexpr int64_t kRows = 256 * 64 * 4;
  EXPECT_LE(moved(m, f), bytes - kRows);
  constexpr int64_t kOfRows = 3 * 256 * 4;  // a number a row of each norm: its mean waits, too
  EXPECT_LE(waiting(m[f]), waiting(before) + kOfRows);
}

}  // namespace
}  // namespace tegula
