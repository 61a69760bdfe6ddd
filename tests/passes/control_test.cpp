#include "tegula/ops/control.h"

#include <random>

#include "tegula/ops/autodiff.h"
#include "tegula/ops/common/elementwise.h"
#include "tests/passes/passes.h"

namespace tegula {
namespace {

const Type kRow = {DType::kF32, {3}};

std::vector<Var> list(Vars vars) { return {vars.begin(), vars.end()}; }
Var yes(Builder& b, bool v) { return cast(constant(b, v, DType::kF32), DType::kBool); }

// Both branches, and the predicate given as a constant that folding finds.
FuncId branch_on(Module& m, bool predicate) {
  Builder b(m, "f");
  const Var x = b.param("x", kRow), y = b.param("y", kRow);
  const auto out = cond(
      yes(b, predicate), {x, y}, [](Builder&, Vars v) { return std::vector<Var>{sin(v[0])}; },
      [](Builder&, Vars v) { return std::vector<Var>{v[1] * v[1]}; });
  b.result("r", out[0]);
  return finish(b);
}

TEST(Control, AKnownPredicateLeavesItsBranch) {
  for (const bool predicate : {true, false}) {
    Module m;
    const FuncId f = branch_on(m, predicate);
    run(m, f, "fold");
    EXPECT_TRUE(run_checked(m, f, "control"));
    EXPECT_EQ(count(m[f], cond_op), 0);
    EXPECT_EQ(count(m[f], sin_op), predicate ? 1 : 0);
    EXPECT_EQ(count(m[f], mul_op), predicate ? 0 : 1);
  }
}

TEST(Control, APredicateOfTheRunStays) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", kRow), go = b.param("go", {DType::kBool, {}});
  const auto out = cond(
      go, {x}, [](Builder&, Vars v) { return std::vector<Var>{sin(v[0])}; },
      [](Builder&, Vars v) { return std::vector<Var>{cos(v[0])}; });
  b.result("r", out[0]);
  const FuncId f = finish(b);
  EXPECT_FALSE(run_checked(m, f, "control"));
  EXPECT_EQ(count(m[f], cond_op), 1);
}

TEST(Control, ALoopThatNeverRunsGivesItsFirstCarries) {
  for (const int64_t trips : {0, 4}) {
    Module m;
    Builder b(m, "f");
    const Var x = b.param("x", kRow);
    const auto out = while_loop(
        b, {x}, {}, trips, [](Builder& g, Vars, Vars) { return yes(g, false); },
        [](Builder&, Vars c, Vars) { return std::vector<Var>{sin(c[0])}; });
    b.result("r", out[0]);
    const FuncId f = finish(b);
    if (trips > 0) run(m, only(m[f], while_loop_op)->regions[0], "fold");
    EXPECT_TRUE(run_checked(m, f, "control"));
    EXPECT_EQ(count(m[f], while_loop_op), 0);
  }
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", kRow), xs = b.param("xs", {DType::kF32, {0, 3}});
  const auto out = scan(b, {x}, {xs}, {}, [](Builder&, Vars c, Vars v, Vars) -> StepResult {
    return {{c[0] + v[0]}, {sin(v[0])}};
  });
  b.result("r", out.carry[0]), b.result("ys", out.ys[0]);
  const FuncId f = finish(b);
  EXPECT_TRUE(run_checked(m, f, "control"));
  EXPECT_EQ(count(m[f], scan_op), 0);
  EXPECT_EQ(m[f].type(m[f].results[1].value).shape, Shape({0, 3}));
}

// Two carries, of which the second feeds only itself, and two ys.
TEST(Control, WhatNobodyReadsOfALoopGoes) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", kRow), xs = b.param("xs", {DType::kF32, {5, 3}});
  const Var other = b.param("other", {DType::kF32, {5, 3}}), w = b.param("w", kRow);
  const auto out =
      scan(b, {x, x}, {xs, exp(other)}, {w, cos(w)}, [](Builder&, Vars c, Vars v, Vars i) {
        return StepResult{{sin(c[0] + v[0]), c[1] * v[1] + i[1]}, {c[0] * i[0], exp(c[1])}};
      });
  b.result("last", out.carry[0]), b.result("ys", out.ys[0]);
  const FuncId f = finish(b);
  EXPECT_TRUE(run_checked(m, f, "control"));
  const Node& loop = *only(m[f], scan_op);
  EXPECT_EQ(loop.attrs.i("n_carry"), 1);
  EXPECT_EQ(loop.attrs.i("n_xs"), 1);
  EXPECT_EQ(loop.inputs.size(), 3u);
  EXPECT_EQ(loop.n_outputs, 2u);
  EXPECT_EQ(count(m[f], exp_op) + count(m[f], cos_op), 0);  // backward: not made at all
  EXPECT_EQ(count(m[loop.regions[0]], exp_op), 0);
}

TEST(Control, ACarryThatAnotherReadsStays) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", kRow), y = b.param("y", kRow);
  const auto out = while_loop(
      b, {x, y, x}, {}, 3, [](Builder&, Vars c, Vars) { return ge(reduce_sum(c[1], {0}), -1e3); },
      [](Builder&, Vars c, Vars) {
        return std::vector<Var>{sin(c[0]), c[1] - 1.0, cos(c[2] + c[0])};
      });
  b.result("r", out[0]);
  const FuncId f = finish(b);
  EXPECT_TRUE(run_checked(m, f, "control"));
  const Node& loop = *only(m[f], while_loop_op);
  EXPECT_EQ(loop.attrs.i("n_carry"), 2);  // the first, and what the condition reads
  EXPECT_FALSE(run(m, f, "control"));
}

TEST(Control, SavedCarriesKeepTheirPlaces) {
  Module m;
  Builder body(m, "body");
  std::vector<Var> c;
  for (const char* name : {"a", "b", "c"}) c.push_back(body.param(name, kRow));
  const Var x = body.param("x", kRow);
  body.result("a", sin(c[0])), body.result("b", c[1] * x), body.result("c", c[2] + c[1]);
  body.result("y", c[0] * x);
  const FuncId region = *body.finish_into_module();
  Builder b(m, "f");
  const Var v = b.param("v", kRow), xs = b.param("xs", {DType::kF32, {4, 3}});
  const Var in[] = {v, v, v, xs};
  const auto out = b.emit_n(scan_op,
                            {{"n_carry", int64_t{3}},
                             {"n_xs", int64_t{1}},
                             {"length", std::vector<Dim>{4}},
                             {"saves", std::vector<int64_t>{0, 2, 1}}},
                            in, {region});
  b.result("saved c", out[5]), b.result("saved b", out[6]);
  const FuncId f = finish(b);
  EXPECT_TRUE(run_checked(m, f, "control"));
  const Node& loop = *only(m[f], scan_op);
  EXPECT_EQ(loop.attrs.i("n_carry"), 2);
  EXPECT_EQ(loop.attrs.ints("saves"), (std::vector<int64_t>{1, 0}));
}

TEST(Control, UnreadResultsOfCallsAndBranchesGo) {
  Module m;
  Builder g(m, "both");
  const Var p = g.param("p", kRow), q = g.param("q", kRow);
  g.result("s", sin(p)), g.result("t", exp(q));
  const FuncId both = *g.finish_into_module();
  Builder b(m, "f");
  const Var x = b.param("x", kRow), go = b.param("go", {DType::kBool, {}});
  const auto called = call(b, both, {x, cos(x)});
  const auto chosen = cond(
      go, {x, tanh(x)}, [](Builder&, Vars v) { return list(v); },
      [](Builder&, Vars v) {
        return std::vector<Var>{neg(v[0]), v[1]};
      });
  b.result("r", called[0] + chosen[0]);
  const FuncId f = finish(b);
  EXPECT_TRUE(run_checked(m, f, "control"));
  EXPECT_EQ(only(m[f], call_op)->inputs.size(), 1u);
  EXPECT_EQ(only(m[f], cond_op)->inputs.size(), 2u);
  EXPECT_EQ(count(m[f], cos_op) + count(m[f], tanh_op), 0);
}

// Bodies whose carries, ys and saves depend on one another at random, of which some are read.
class DrawnLoop {
 public:
  explicit DrawnLoop(unsigned seed) : rng_(seed) {}

  FuncId write(Module& m) {
    Builder b(m, "f");
    const bool is_while = draw(4) == 0;
    const size_t n_carry = draw(4) + 1, n_xs = is_while ? 0 : draw(3), n_inv = draw(3);
    Builder body(m, "body"), test(m, "test");
    std::vector<Var> inner, outer, tested;
    for (size_t i = 0; i < n_carry + n_xs + n_inv; ++i) {
      const bool is_x = i >= n_carry && i < n_carry + n_xs;
      inner.push_back(body.param(cat("p", i), kRow));
      tested.push_back(test.param(cat("p", i), kRow));
      outer.push_back(sin(b.param(cat("o", i), is_x ? Type{DType::kF32, {4, 3}} : kRow)));
    }
    const size_t n_ys = is_while ? 0 : draw(4);
    for (size_t i = 0; i < n_carry + n_ys; ++i) body.result(cat("r", i), expression(inner));
    test.result("go", ge(reduce_sum(expression(tested), {0}), -2.0));
    std::vector<FuncId> regions = {*body.finish_into_module()};
    Attrs attrs{{"n_carry", static_cast<int64_t>(n_carry)}};
    if (is_while) {
      attrs.set("max_trips", static_cast<int64_t>(draw(4)));
      regions.insert(regions.begin(), *test.finish_into_module());
    } else {
      std::vector<int64_t> saves;
      for (size_t i = 0; i < n_carry; ++i)
        if (draw(2)) saves.push_back(static_cast<int64_t>(i));
      attrs.set("n_xs", static_cast<int64_t>(n_xs)), attrs.set("saves", saves);
      attrs.set("length", std::vector<Dim>{4}), attrs.set("reverse", draw(2) == 1);
    }
    const auto out =
        b.emit_n(is_while ? while_loop_op : scan_op, std::move(attrs), outer, std::move(regions));
    for (size_t i = 0; i < out.size(); ++i)
      if (draw(3) == 0 || i + 1 == out.size()) b.result(cat("r", i), neg(out[i]));
    return finish(b);
  }

 private:
  size_t draw(size_t n) { return rng_() % n; }
  Var expression(const std::vector<Var>& of) {
    Var v = of[draw(of.size())];
    for (size_t n = draw(3); n > 0; --n) {
      const Var w = of[draw(of.size())];
      v = draw(2) ? v * w : tanh(v + w);
    }
    return v;
  }
  std::mt19937 rng_;
};

TEST(Control, DrawnLoopsKeepTheirBits) {
  int n_changed = 0;
  for (unsigned seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    Module m;
    const FuncId f = DrawnLoop(seed).write(m);
    n_changed += run_checked(m, f, "control");
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(n_changed, 50);
}

}  // namespace
}  // namespace tegula
