// Control flow planned and run: sub-plans in the parent's arena, bound to its tensors, against the
// interpreter of references, bit for bit.
#include "tegula/ops/control.h"

#include <gtest/gtest.h>

#include "tegula/ops/autodiff.h"
#include "tegula/ops/math.h"
#include "tests/common/run_plan.h"

namespace tegula {
namespace {

using test::expect_bits_of_interpreter;

const Type kScalar = {DType::kF32, {}};

// Adds f's pullback and pushforward, and those of the pullback, and compares every one.
void expect_all(const std::shared_ptr<Module>& m, FuncId f) {
  expect_bits_of_interpreter(m, f);
  auto v = vjp_function(*m, f), j = jvp_function(*m, f);
  ASSERT_TRUE(v.ok() && j.ok());
  auto vv = vjp_function(*m, *v), jv = jvp_function(*m, *v);
  ASSERT_TRUE(vv.ok() && jv.ok());
  for (FuncId d : {*v, *j, *vv, *jv}) expect_bits_of_interpreter(m, d);
}

FuncId recurrence(Module& m, bool reverse) {
  Builder b(m, "recurrence");
  const Type h = {DType::kF32, {2, 3}};
  const Var h0 = b.param("h", h), s0 = b.param("s", kScalar);
  const Var x = b.param("x", {DType::kF32, {2, 4, 3}});  // batch first: its rows are strided
  const Var w = b.param("w", {DType::kF32, {3, 3}}), v = b.param("v", h);
  auto r = scan(
      b, {h0, s0}, {transpose(x, 0, 1)}, {w, v},
      [](Builder&, Vars c, Vars xs, Vars i) -> StepResult {
        const Var next = tanh(matmul(c[0], i[0]) + xs[0] * c[1]);
        return {{next, c[1] * 0.5 + reduce_sum(xs[0] * i[1], {0, 1})}, {next * c[1], xs[0] + c[0]}};
      },
      {.reverse = reverse});
  b.result("h", r.carry[0]), b.result("s", r.carry[1]);
  b.result("y", r.ys[0]), b.result("z", r.ys[1]);
  return *b.finish_into_module();
}

TEST(Control, Scan) {
  for (bool reverse : {false, true}) {
    auto m = std::make_shared<Module>();
    expect_all(m, recurrence(*m, reverse));
  }
}

// Carries that trade places, pass through, are given as ys, or come from an invariant; ys that are
// their xs: results that are parameters' own contents.
TEST(Control, ScanOfResultsThatAreParameters) {
  auto m = std::make_shared<Module>();
  Builder b(*m, "shuffle");
  const Type t = {DType::kF32, {3}};
  std::vector<Var> c;
  for (const char* name : {"a", "b", "c", "d"}) c.push_back(b.param(name, t));
  const Var x = b.param("x", {DType::kF32, {5, 3}}), k = b.param("k", t);
  auto r = scan(b, c, {x}, {k}, [](Builder&, Vars v, Vars xs, Vars i) -> StepResult {
    return {{v[1], v[0] + xs[0], v[2], i[0]}, {v[0], xs[0], i[0], v[3], v[0] + xs[0]}};
  });
  for (size_t i = 0; i < 4; ++i) b.result(cat("c", i), r.carry[i]);
  for (size_t i = 0; i < 5; ++i) b.result(cat("y", i), r.ys[i]);
  expect_all(m, *b.finish_into_module());
}

// One value carried twice and also read as an invariant and as xs.
TEST(Control, ScanOfOneValueInManyPlaces) {
  auto m = std::make_shared<Module>();
  Builder b(*m, "same");
  const Var x = b.param("x", {DType::kF32, {3, 3}});
  const Var y = sin(x);
  auto r = scan(b, {y, y}, {y}, {y}, [](Builder&, Vars c, Vars xs, Vars i) -> StepResult {
    return {{c[0] + c[1] * i[0], c[1] * xs[0]}, {c[0]}};
  });
  b.result("a", r.carry[0]), b.result("b", r.carry[1]), b.result("y", r.ys[0]);
  expect_all(m, *b.finish_into_module());
}

TEST(Control, Cond) {
  auto m = std::make_shared<Module>();
  Builder b(*m, "branch");
  const Type t = {DType::kF32, {2, 3}};
  const Var x = b.param("x", t), k = b.param("k", kScalar);
  const auto y = cond(
      gt(k, 0.0), {transpose(x, 0, 1), k},
      [](Builder&, Vars v) {
        return std::vector{tanh(v[0]) * v[1], v[1]};
      },
      [](Builder&, Vars v) {
        return std::vector{v[0] * v[0], v[1] * v[1]};
      });
  b.result("y", y[0]), b.result("z", y[1]);
  const FuncId f = *b.finish_into_module();
  for (uint64_t seed : {1, 2, 3, 4}) expect_bits_of_interpreter(m, f, seed);  // both branches
  expect_all(m, f);
}

TEST(Control, Call) {
  auto m = std::make_shared<Module>();
  Builder g(*m, "g");
  const Var u = g.param("u", {DType::kF32, {4}}), n = g.param("n", {DType::kI64, {}});
  g.result("y", sin(u) * cast(n, DType::kF32)), g.result("u", u);
  const FuncId id = *g.finish_into_module();
  Builder b(*m, "f");
  const Var x = b.param("x", {DType::kF32, {4}}), k = b.param("n", {DType::kI64, {}});
  const auto y = call(b, id, {x, k});
  const auto z = call(b, id, {y[0], k});
  b.result("y", z[0]), b.result("u", z[1]);
  expect_all(m, *b.finish_into_module());
}

FuncId collatz(Module& m) {
  Builder b(m, "collatz");
  const Var n = b.param("n", {DType::kI64, {5}}), x = b.param("x", {DType::kF64, {5}});
  const Var w = b.param("w", {DType::kF64, {}});
  auto body = [](Builder& s, Vars c, Vars in, Vars i) {
    const auto out = while_loop(
        s, {in[0] + 5.0, in[1]}, {i[0]}, 30, [](Builder&, Vars v, Vars) { return gt(v[0], 1.0); },
        [](Builder&, Vars v, Vars k) {
          const Var half = div(v[0], 2.0);
          return cond(
              eq(half * 2.0, v[0]), {v[0], half, v[1], k[0]},
              [](Builder&, Vars a) {
                return std::vector{a[1], a[2] * a[3]};
              },
              [](Builder&, Vars a) {
                return std::vector{a[0] * 3.0 + 1.0, a[2] + 1.0};
              });
        });
    return StepResult{{c[0] + out[1]}, {out[1], out[0]}};
  };
  auto r = scan(b, {constant(b, 0, DType::kF64)}, {n, x}, {w}, body);
  b.result("loss", r.carry[0]), b.result("each", r.ys[0]), b.result("n", r.ys[1]);
  return *b.finish_into_module();
}

TEST(Control, CondInWhileInScan) {
  auto m = std::make_shared<Module>();
  const FuncId f = collatz(*m);
  expect_bits_of_interpreter(m, f);
  auto v = vjp_function(*m, f), j = jvp_function(*m, f);
  ASSERT_TRUE(v.ok() && j.ok());
  expect_bits_of_interpreter(m, *v);
  expect_bits_of_interpreter(m, *j);

  // Against plain C++.
  const auto in = test::random_inputs(*m, (*m)[f], 1);
  auto plan = make_plan(m, f, {});
  ASSERT_TRUE(plan.ok());
  const auto out = test::run_plan(*plan, in);
  double total = 0;
  for (int64_t k = 0; k < 5; ++k) {
    double x = in[1].at(k);
    auto n = static_cast<int64_t>(in[0].at(k)) + 5;
    for (; n > 1; n = n % 2 == 0 ? n / 2 : 3 * n + 1) x = n % 2 == 0 ? x * in[2].at(0) : x + 1;
    EXPECT_EQ(out[1].at(k), x);
    EXPECT_EQ(out[2].at(k), 1);
    total += x;
  }
  EXPECT_EQ(out[0].at(0), total);
}

// A donated state that a loop carries is updated where it lies: the plan needs no memory for it.
TEST(Control, DonatedCarryStaysInPlace) {
  auto m = std::make_shared<Module>();
  Builder b(*m, "decay");
  const Type big = {DType::kF32, {1024}};
  const Var state = b.param("state", big, Role::kState), x = b.param("x", {DType::kF32, {6, 1024}});
  auto r = scan(b, {state}, {x}, {}, [](Builder&, Vars c, Vars xs, Vars) -> StepResult {
    return {{c[0] * 0.5 + xs[0]}, {}};
  });
  b.result("state", r.carry[0]);
  b.donate("state", "state");
  const FuncId f = *b.finish_into_module();
  expect_bits_of_interpreter(m, f);
  auto plan = make_plan(m, f, {});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->steps.size(), 1u) << plan->to_string();
  // One temporary of the body, c * 0.5, which the sum may overwrite or which is the carry itself.
  EXPECT_LE(plan->arena_bytes, big.bytes() + 128) << plan->to_string();
}

// The run's counts are what the plan says, and the sub-plans' share is in it.
TEST(Control, CountsTheTripsThatRan) {
  auto m = std::make_shared<Module>();
  const FuncId f = recurrence(*m, false);
  auto plan = make_plan(m, f, {});
  ASSERT_TRUE(plan.ok());
  const auto in = test::random_inputs(*m, (*m)[f], 1);
  Rank rank(1);
  auto session = Session::create(std::make_shared<Plan>(*plan), rank);
  ASSERT_TRUE(session.ok());
  auto memory = in;
  for (size_t i = 0; i < in.size(); ++i)
    (*session)->bind(static_cast<int>(i), memory[i].bytes.data());
  for (int run = 1; run <= 2; ++run) {
    ASSERT_TRUE((*session)->run().ok());
    EXPECT_EQ((*session)->counters().math_flops.load(), run * plan->flops());
  }
  std::vector<NodeCount> counts;
  ASSERT_TRUE(interpret(*m, (*m)[f], in, Arithmetic::kCounted, {}, &counts).ok());
  int64_t counted = 0;
  for (const NodeCount& c : counts) counted += c.flops;
  EXPECT_EQ(counted, plan->flops());
}

}  // namespace
}  // namespace tegula
