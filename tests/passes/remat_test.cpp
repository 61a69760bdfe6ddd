#include <cmath>
#include <random>

#include "tegula/ops/autodiff.h"
#include "tegula/ops/control.h"
#include "tegula/passes/remat_chain.h"
#include "tegula/passes/remat_dp.h"
#include "tests/passes/passes.h"

namespace tegula {
namespace {

Type f32(Shape s) { return {DType::kF32, s}; }

// A residual network with its gradients: x += gelu(norm(x) w) v, per block.
FuncId residual_net(Module& m, int n_blocks, int64_t d = 8) {
  Builder b(m, "step");
  Var x = b.param("x", f32({96, d}));
  std::vector<Var> weights;
  for (int i = 0; i < n_blocks; ++i) {
    const Var w = b.weight(cat("w", i), f32({d, 2 * d})),
              v = b.weight(cat("v", i), f32({2 * d, d}));
    const Var n = x * rsqrt(reduce_mean(x * x, {-1}, true) + 1e-5);
    x = x + matmul(gelu(matmul(n, w)), v);
    weights.push_back(w), weights.push_back(v);
  }
  const Var loss = reduce_mean(x * x, {0, 1});
  const auto grads = grad(loss, weights);
  b.result("loss", loss);
  for (size_t i = 0; i < weights.size(); ++i) b.result(cat("g", i), grads[i]);
  const FuncId f = finish(b);
  for (const char* pass : {"views", "fold", "algebra", "cse", "dce"}) run(m, f, pass);
  return f;
}

// The largest sum of live bytes when the nodes run in order; parameters not counted.
int64_t peak(const Function& f) {
  std::vector<ValueId> root(f.values.size());
  std::vector<NodeId> last(f.values.size(), 0);
  for (ValueId v = 0; v < f.values.size(); ++v) {
    const Node* n = f.producer(v);
    root[v] = n && n->op->is_view ? root[n->inputs[0]] : v;
  }
  const auto end = static_cast<NodeId>(f.nodes.size());
  for (NodeId n = 0; n < end; ++n)
    for (ValueId v : f.nodes[n].inputs) last[root[v]] = n;
  for (const Output& r : f.results) last[root[r.value]] = end;
  int64_t most = 0;
  for (NodeId at = 0; at < end; ++at) {
    int64_t live = 0;
    for (NodeId n = 0; n <= at; ++n)
      if (!f.nodes[n].op->is_view && std::max(last[f.nodes[n].output()], n) >= at)
        live += f.type(f.nodes[n].output()).bytes();
    most = std::max(most, live);
  }
  return most;
}

int64_t flops(const Module& m, const Function& f) {
  int64_t total = 0;
  for (const Node& n : f.nodes) {
    const auto in = f.input_types(n), out = f.output_types(n);
    total += flops_of({n.op, &n.attrs, in, out, &m, n.regions});
  }
  return total;
}

// A loop over micro-batches whose body holds a forward and a backward part.
TEST(Remat, WorksWithinBodies) {
  Module m;
  const FuncId net = residual_net(m, 12);
  Builder b(m, "f");
  const Function body = m[net];
  std::vector<Var> carry, weights;
  const Var xs = b.param("xs", f32({3, 96, 8}));
  for (size_t i = 1; i < body.params.size(); ++i) {
    weights.push_back(b.weight(body.params[i].name, body.type(body.params[i].value)));
    carry.push_back(fill(b, 0, weights.back().type()));
  }
  ASSERT_EQ(body.type(body.params[0].value).shape, Shape({96, 8}));
  const auto out = scan(b, carry, {xs}, weights, [&](Builder& g, Vars c, Vars x, Vars w) {
    std::vector<Var> args = {x[0]};
    args.insert(args.end(), w.begin(), w.end());
    auto y = inline_call(g, body, args);
    StepResult r{{}, {y[0]}};
    for (size_t i = 0; i < c.size(); ++i) r.carry.push_back(c[i] + y[i + 1]);
    return r;
  });
  for (size_t i = 0; i < out.carry.size(); ++i) b.result(cat("g", i), out.carry[i]);
  const FuncId f = finish(b);
  const Function before = m[f];
  PipelineOptions o;
  const auto body_of = [](const Module& of, FuncId id) {
    return of[only(of[id], scan_op)->regions[0]];
  };
  Module kept = m;
  ASSERT_TRUE(run_passes(kept, f, o).ok());
  const int64_t whole = peak(body_of(kept, f));
  for (const Remat remat : {Remat::kSqrt, Remat::kBudget}) {
    Module less = m;
    o.pass.remat = remat, o.pass.memory_bytes = whole * 3 / 4;
    const auto reports = run_passes(less, f, o);
    ASSERT_TRUE(reports.ok()) << reports.error().to_string();
    EXPECT_LT(peak(body_of(less, f)), whole);
    less.add(before);
    expect_same_bits(less, before, less[f]);
  }
}

TEST(Remat, FindsTheBlocks) {
  Module m;
  const FuncId f = residual_net(m, 5);
  const RematChain c = find_chain(m, m[f], {});
  // Every block enters through the stream alone.
  std::vector<ValueId> streams;
  for (const Node& n : m[f].nodes)
    if (n.op == &add_op && n.phase == Phase::kForward && m[f].type(n.output()).shape.rank() == 2 &&
        m[f].type(n.output()).shape[1] == Dim(8))
      streams.push_back(n.output());
  ASSERT_EQ(streams.size(), 5u);
  for (ValueId v : streams) EXPECT_NE(std::find(c.entry.begin(), c.entry.end(), v), c.entry.end());
  for (NodeId n = 0; n < m[f].nodes.size(); ++n)
    EXPECT_EQ(c.is_backward[n], m[f].nodes[n].phase == Phase::kBackward);
}

TEST(Remat, NothingToDo) {
  Module m;
  const FuncId f = residual_net(m, 3);
  EXPECT_FALSE(run(m, f, "remat"));
  PassOptions o;
  o.remat = Remat::kBudget;
  o.memory_bytes = 1 << 30;
  EXPECT_FALSE(run(m, f, "remat", o));
  Builder b(m, "forward");
  Var x = b.param("x", f32({4, 4}));
  for (int i = 0; i < 5; ++i) x = tanh(x);
  b.result("y", x);
  const FuncId g = finish(b);
  o.memory_bytes = 1;
  EXPECT_FALSE(run(m, g, "remat", o));
}

TEST(Remat, SqrtKeepsBitsAndSavesMemory) {
  Module m;
  const FuncId f = residual_net(m, 16);
  const Function before = m[f];
  PassOptions o;
  o.remat = Remat::kSqrt;
  EXPECT_TRUE(run(m, f, "remat", o));
  expect_same_bits(m, before, m[f]);
  run(m, f, "dce");
  EXPECT_LT(2 * peak(m[f]), peak(before));
  EXPECT_FALSE(run(m, f, "remat", o));
}

TEST(Remat, OtherPassesDoNotUndoIt) {
  Module m;
  const FuncId f = residual_net(m, 16);
  PassOptions o;
  o.remat = Remat::kSqrt;
  EXPECT_TRUE(run(m, f, "remat", o));
  run(m, f, "dce");
  const int64_t nodes = static_cast<int64_t>(m[f].nodes.size()), bytes = peak(m[f]);
  for (const char* pass : {"cse", "views", "fold", "algebra", "cse", "dce"}) run(m, f, pass);
  EXPECT_EQ(static_cast<int64_t>(m[f].nodes.size()), nodes);
  EXPECT_EQ(peak(m[f]), bytes);
}

TEST(Remat, RecomputationWaitsForTheGradient) {
  Module m;
  const FuncId f = residual_net(m, 4);
  PassOptions o;
  o.remat = Remat::kSqrt;
  EXPECT_TRUE(run(m, f, "remat", o));
  int n_barriers = 0;
  for (const Node& n : m[f].nodes) {
    if (n.op != &barrier_op) continue;
    ++n_barriers;
    ASSERT_EQ(n.inputs.size(), 2u);
    EXPECT_EQ(m[f].producer(n.inputs[1])->phase, Phase::kBackward);
  }
  EXPECT_GT(n_barriers, 0);
}

TEST(Remat, BudgetsAreMetWithTheCheapestFirst) {
  Module m;
  const FuncId f = residual_net(m, 12, 16);
  const Function before = m[f];
  PassOptions o;
  o.remat = Remat::kBudget;
  // The number that the pass itself takes for the peak when nothing has to go.
  o.memory_bytes = 1;
  auto too_small = run_pass(m, f, *find_pass("remat"), o);
  ASSERT_FALSE(too_small.ok());
  EXPECT_EQ(too_small.error().code, Code::kOutOfMemory);
  EXPECT_NE(too_small.error().message.find("too small"), std::string::npos);

  int64_t previous = 0;
  const int64_t all = peak(before);
  for (int percent : {90, 70, 50}) {
    m[f] = before;
    o.memory_bytes = all * percent / 100;
    ASSERT_TRUE(run(m, f, "remat", o)) << percent;
    expect_same_bits(m, before, m[f]);
    run(m, f, "dce");
    EXPECT_LT(peak(m[f]), all * (percent + 15) / 100);
    const int64_t extra = flops(m, m[f]) - flops(m, before);
    EXPECT_GE(extra, previous);
    previous = extra;
    if (percent == 90) {
      // Products are recomputed last.
      EXPECT_EQ(count(m[f], dot_op), count(before, dot_op));
      EXPECT_GT(extra, 0);
    }
  }
}

// The backward part reads a view made in the forward part: the view, too, is of the new value.
TEST(Remat, WhatIsReadThroughAViewGoesToo) {
  Module m;
  Builder b(m, "step");
  Var x = b.param("x", f32({64, 8}));
  std::vector<Var> weights;
  for (int i = 0; i < 10; ++i) {
    weights.push_back(b.weight(cat("w", i), f32({8, 64})));
    const Var wide = reshape(transpose(matmul(x, weights.back()), 0, 1), {8, 8, 64});
    x = transpose(reduce_sum(wide * wide, {0}), 0, 1);
  }
  const Var loss = reduce_mean(x * x, {0, 1});
  const auto grads = grad(loss, weights);
  for (size_t i = 0; i < grads.size(); ++i) b.result(cat("g", i), grads[i]);
  const FuncId f = finish(b);
  for (const char* pass : {"views", "fold", "algebra", "cse", "dce"}) run(m, f, pass);
  const Function before = m[f];
  PassOptions o;
  o.remat = Remat::kBudget;
  o.memory_bytes = peak(before) / 2;
  EXPECT_TRUE(run(m, f, "remat", o));
  expect_same_bits(m, before, m[f]);
  run(m, f, "dce");
  EXPECT_LT(10 * peak(m[f]), 6 * peak(before));
}

TEST(Remat, ThePlannerIsAsked) {
  Module m;
  const FuncId f = residual_net(m, 8);
  struct Asked : Planning {
    mutable int times = 0;
    Result<int64_t> peak_bytes(const Module&, const Function& g) const override {
      ++times;
      EXPECT_GT(count(g, fused_op), 0);
      return 50;
    }
  } asked;
  PassOptions o;
  o.remat = Remat::kBudget;
  o.memory_bytes = 100;
  o.planning = &asked;
  EXPECT_FALSE(run(m, f, "remat", o));
  EXPECT_EQ(asked.times, 1);
}

TEST(Remat, DropoutMasksAreMadeAgain) {
  Module m;
  Builder b(m, "step");
  Var x = b.param("x", f32({16, 8}));
  const Var seed = b.param("seed", {DType::kI64, {}});
  std::vector<Var> weights;
  for (int i = 0; i < 9; ++i) {
    weights.push_back(b.weight(cat("w", i), f32({8, 8})));
    const Var u = random_uniform(seed, {16, 8}, i);
    x = x + select(lt(u, 0.7), matmul(tanh(x), weights.back()) / 0.7, zeros_like(x));
  }
  const Var loss = reduce_mean(x * x, {0, 1});
  const auto grads = grad(loss, weights);
  for (size_t i = 0; i < grads.size(); ++i) b.result(cat("g", i), grads[i]);
  const FuncId f = finish(b);
  for (const char* pass : {"cse", "dce"}) run(m, f, pass);
  const Function before = m[f];
  PassOptions o;
  o.remat = Remat::kSqrt;
  EXPECT_TRUE(run(m, f, "remat", o));
  expect_same_bits(m, before, m[f]);
  run(m, f, "cse");
  run(m, f, "dce");
  EXPECT_GT(count(m[f], random_uniform_op), 9);
}

// The best tiling by trying all of them; -1: none.
double brute_force(const std::vector<RematOption>& options, int at, int n, int64_t kept,
                   int64_t budget) {
  if (at == n) return 0;
  double best = -1;
  for (const RematOption& o : options) {
    if (o.begin != at || kept + o.kept_bytes + o.working_bytes > budget) continue;
    const double rest = brute_force(options, o.end, n, kept + o.kept_bytes, budget);
    if (rest >= 0 && (best < 0 || o.seconds + rest < best)) best = o.seconds + rest;
  }
  return best;
}

TEST(RematDp, IsAsGoodAsTryingEverything) {
  std::mt19937 rng(7);
  auto draw = [&](int below) { return static_cast<int64_t>(rng() % static_cast<unsigned>(below)); };
  int n_feasible = 0;
  for (int round = 0; round < 300; ++round) {
    const int n = 1 + static_cast<int>(draw(8));
    std::vector<RematOption> options;
    for (int begin = 0; begin < n; ++begin) {
      options.push_back({begin, begin + 1, 10 + draw(30), 0, 0});
      for (int k = 0; k < 2; ++k)
        options.push_back({begin, begin + 1, draw(20), draw(30), static_cast<double>(draw(50))});
      for (int end = begin + 2; end <= n; ++end)
        options.push_back({begin, end, draw(10), draw(20 * (end - begin)),
                           static_cast<double>(draw(50 * (end - begin)))});
    }
    const int64_t budget = 5 + draw(25 * n);
    const double want = brute_force(options, 0, n, 0, budget);
    const auto chosen = choose_remat(options, n, budget, static_cast<int>(budget) + 2);
    ASSERT_EQ(chosen.has_value(), want >= 0);
    if (!chosen) continue;
    ++n_feasible;
    double have = 0;
    int at = 0;
    int64_t kept = 0;
    for (int i : *chosen) {
      const RematOption& o = options[static_cast<size_t>(i)];
      EXPECT_EQ(o.begin, at);
      at = o.end, kept += o.kept_bytes, have += o.seconds;
      EXPECT_LE(kept + o.working_bytes, budget);
    }
    EXPECT_EQ(at, n);
    EXPECT_EQ(have, want);
  }
  EXPECT_GT(n_feasible, 100);
}

}  // namespace
}  // namespace tegula
