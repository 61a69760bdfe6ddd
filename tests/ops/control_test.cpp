// Control flow against unrolled and plain C++ code: values, gradients, tangents, second
// derivatives. The f64 oracle runs both sides, so that they may differ by rounding alone.
#include "tegula/ops/control.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tegula/base/philox.h"
#include "tegula/ir/interpret.h"
#include "tegula/ops/autodiff.h"
#include "tegula/ops/math.h"

namespace tegula {
namespace {

HostTensor random_tensor(const Type& type, uint64_t seed) {
  HostTensor t(type);
  for (int64_t i = 0; i < t.numel(); ++i)
    t.put(i, is_float(type.dtype)
                 ? 2 * philox_uniform(seed, 1, static_cast<uint64_t>(i)) - 1
                 : static_cast<double>(philox_bits(seed, 1, static_cast<uint64_t>(i)) % 3));
  return t;
}

std::vector<HostTensor> run(const Module& m, FuncId f) {
  std::vector<HostTensor> in;
  for (const Param& p : m[f].params)
    in.push_back(random_tensor(m[f].type(p.value), 17 + in.size()));
  auto out = interpret(m, m[f], in);
  EXPECT_TRUE(out.ok()) << out.error().to_string();
  return out.ok() ? *std::move(out) : std::vector<HostTensor>();
}

void expect_equal(const Module& m, FuncId a, FuncId b) {
  const auto x = run(m, a), y = run(m, b);
  ASSERT_EQ(x.size(), y.size());
  for (size_t r = 0; r < x.size(); ++r) {
    ASSERT_EQ(x[r].type, y[r].type) << m[a].results[r].name;
    double largest = 0;
    for (double v : y[r].values()) largest = std::max(largest, std::abs(v));
    for (int64_t i = 0; i < x[r].numel(); ++i)
      ASSERT_NEAR(x[r].at(i), y[r].at(i), 64 * 0x1p-52 * std::max(largest, 1.0))
          << m[a].results[r].name << " at " << i;
  }
}

// Both functions, their derivatives, and derivatives of these in every order.
void expect_equal_derivatives(Module& m, FuncId a, FuncId b) {
  expect_equal(m, a, b);
  auto derive = [&](FuncId f, const char* how) {
    for (; *how; ++how) {
      auto d = *how == 'v' ? vjp_function(m, f) : jvp_function(m, f);
      EXPECT_TRUE(d.ok()) << d.error().to_string();
      if (!d.ok()) return f;
      f = *d;
    }
    return f;
  };
  for (const char* how : {"v", "j", "vv", "vj", "jv", "jj"}) {
    SCOPED_TRACE(how);
    expect_equal(m, derive(a, how), derive(b, how));
    if (::testing::Test::HasFatalFailure()) return;
  }
}

const Type kH = {DType::kF32, {2, 3}}, kW = {DType::kF32, {3, 3}};

StepResult step(Vars c, Vars x, Vars w) {
  const Var h = tanh(matmul(c[0], w[0]) + x[0] * c[1]);
  return {{h, c[1] * 0.5 + reduce_sum(x[0] * w[1], {0, 1})}, {h * c[1], x[0] + c[0]}};
}

FuncId recurrence(Module& m, int64_t length, bool reverse, bool unroll) {
  Builder b(m, unroll ? "unrolled" : "looped");
  const Var h = b.param("h", kH), s = b.param("s", {DType::kF32, {}});
  const Var x = b.param("x", {DType::kF32, {length, 2, 3}});
  const Var w = b.param("w", kW), v = b.param("v", kH);
  if (!unroll) {
    auto r = scan(b, {h, s}, {x}, {w, v},
                  [](Builder&, Vars c, Vars xs, Vars i) { return step(c, xs, i); },
                  {.reverse = reverse});
    b.result("h", r.carry[0]), b.result("s", r.carry[1]);
    b.result("y", r.ys[0]), b.result("z", r.ys[1]);
  } else {
    std::vector<Var> c = {h, s};
    std::vector<Var> ys[2];
    ys[0].resize(static_cast<size_t>(length)), ys[1].resize(static_cast<size_t>(length));
    for (int64_t k = 0; k < length; ++k) {
      const int64_t t = reverse ? length - 1 - k : k;
      const Var xt[] = {squeeze(slice(x, 0, t, 1), 0)}, i[] = {w, v};
      const StepResult r = step(c, xt, i);
      c = r.carry;
      for (size_t y = 0; y < 2; ++y) ys[y][static_cast<size_t>(t)] = unsqueeze(r.ys[y], 0);
    }
    b.result("h", c[0]), b.result("s", c[1]);
    b.result("y", concat(ys[0], 0)), b.result("z", concat(ys[1], 0));
  }
  auto f = b.finish_into_module();
  EXPECT_TRUE(f.ok()) << f.error().to_string();
  return *f;
}

TEST(Scan, EqualsUnrolled) {
  for (bool reverse : {false, true}) {
    Module m;
    const FuncId loop = recurrence(m, 4, reverse, false), flat = recurrence(m, 4, reverse, true);
    expect_equal_derivatives(m, loop, flat);
  }
}

// In f32 the loop's gradient has the very bits of the unrolled one: each step adds its share of an
// invariant's gradient once, in the same order.
TEST(Scan, GradientHasTheBitsOfUnrolled) {
  Module m;
  std::vector<HostTensor> in, out[2];
  for (bool unroll : {false, true}) {
    auto f = vjp_function(m, recurrence(m, 5, false, unroll));
    ASSERT_TRUE(f.ok());
    in.clear();
    for (const Param& p : m[*f].params) in.push_back(random_tensor(m[*f].type(p.value), in.size()));
    auto r = interpret(m, m[*f], in, Arithmetic::kNaive);
    ASSERT_TRUE(r.ok()) << r.error().to_string();
    out[unroll] = *std::move(r);
  }
  for (size_t r = 0; r < out[0].size(); ++r) EXPECT_EQ(out[0][r].bytes, out[1][r].bytes) << r;
}

TEST(Scan, SavesOnlyTheCarriesItsGradientReads) {
  Module m;
  Builder b(m, "sum");
  const Var x = b.param("x", {DType::kF32, {5, 4}});
  const Var zero = fill(b, 0, {DType::kF32, {4}});
  auto r = scan(b, {zero}, {x}, {}, [](Builder&, Vars c, Vars xs, Vars) -> StepResult {
    return {{c[0] + xs[0]}, {}};
  });
  const auto g = grad(reduce_sum(r.carry[0], {0}), std::span(&x, 1));
  b.result("g", g[0]);
  auto f = b.finish_into_module();
  ASSERT_TRUE(f.ok()) << f.error().to_string();
  int scans = 0;
  for (const Node& n : m[*f].nodes)
    if (n.op->name == "scan") {
      ++scans;
      EXPECT_FALSE(n.attrs.has("saves"));
    }
  EXPECT_EQ(scans, 2);  // forward and backward, none that saves: addition needs no values
  for (double v : run(m, *f)[0].values()) EXPECT_EQ(v, 1);
}

TEST(Scan, CarriesIntegers) {
  Module m;
  Builder b(m, "power");
  const Var x = b.param("x", {DType::kF32, {3}});
  auto r = scan(b, {constant(b, 1, DType::kI64), x}, {}, {x},
                [](Builder&, Vars c, Vars, Vars i) -> StepResult {
                  return {{c[0] + 1.0, c[1] * i[0]}, {c[0]}};
                },
                {.length = 3});
  b.result("count", r.carry[0]), b.result("x4", r.carry[1]), b.result("counts", r.ys[0]);
  b.result("g", grad(reduce_sum(r.carry[1], {0}), std::span(&x, 1))[0]);
  auto f = b.finish_into_module();
  ASSERT_TRUE(f.ok()) << f.error().to_string();
  const auto out = run(m, *f);
  const auto v = random_tensor({DType::kF32, {3}}, 17).values();
  EXPECT_EQ(out[0].at(0), 4);
  EXPECT_EQ(out[2].values(), (std::vector<double>{1, 2, 3}));
  for (int64_t i = 0; i < 3; ++i) {
    const double y = v[static_cast<size_t>(i)];
    EXPECT_NEAR(out[1].at(i), y * y * y * y, 1e-15);
    EXPECT_NEAR(out[3].at(i), 4 * y * y * y, 1e-15);
  }
}

// if (s > 0) tanh(x) * s else x * x, once as cond and once by hand on each side.
TEST(Cond, EachBranchAndItsDerivatives) {
  for (double s : {-1.0, 1.0}) {
    Module m;
    const Type t = {DType::kF32, {4}};
    FuncId f[2];
    for (int by_hand : {0, 1}) {
      Builder b(m, by_hand ? "hand" : "cond");
      const Var x = b.param("x", t), k = b.param("k", {DType::kF32, {}});
      auto then = [](Builder&, Vars v) { return std::vector<Var>{tanh(v[0]) * v[1], v[1]}; };
      auto otherwise = [](Builder&, Vars v) { return std::vector<Var>{v[0] * v[0], v[1] * v[1]}; };
      const Var args[] = {x, k};
      const auto y = !by_hand ? cond(gt(constant(b, s, DType::kF32), 0.0), args, then, otherwise)
                     : s > 0  ? then(b, args)
                              : otherwise(b, args);
      b.result("y", y[0]), b.result("z", y[1]);
      auto id = b.finish_into_module();
      ASSERT_TRUE(id.ok()) << id.error().to_string();
      f[by_hand] = *id;
    }
    expect_equal_derivatives(m, f[0], f[1]);
  }
}

TEST(Cond, BranchesThatDisagreeAreAnError) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", {DType::kF32, {4}});
  const auto y = cond(
      gt(constant(b, 1, DType::kF32), 0.0), {x}, [](Builder&, Vars v) { return std::vector{v[0]}; },
      [](Builder&, Vars v) { return std::vector{reduce_sum(v[0], {0})}; });
  b.result("y", y[0]);
  auto f = b.finish_into_module();
  ASSERT_FALSE(f.ok());
  EXPECT_NE(f.error().message.find("result 0 of then is f32[4], of else f32[]"), std::string::npos)
      << f.error().message;
}

TEST(Body, CapturingIsAnError) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", {DType::kF32, {5, 4}}), w = b.param("w", {DType::kF32, {4}});
  auto r = scan(b, {w}, {x}, {}, [&](Builder&, Vars c, Vars xs, Vars) -> StepResult {
    return {{c[0] + xs[0] * w}, {}};
  });
  b.result("y", r.carry[0]);
  auto f = b.finish_into_module();
  ASSERT_FALSE(f.ok());
  EXPECT_NE(f.error().message.find("another builder"), std::string::npos) << f.error().message;
}

// Newton's method for the square root stops after a number of steps that depends on the data.
FuncId newton(Module& m, int64_t max_trips) {
  Builder b(m, "newton");
  const Var a = b.param("a", {DType::kF64, {}});
  const auto r = while_loop(
      b, {a, constant(b, 0, DType::kI64)}, {a}, max_trips,
      [](Builder&, Vars c, Vars i) { return gt(abs(c[0] * c[0] - i[0]), 1e-9); },
      [](Builder&, Vars c, Vars i) -> std::vector<Var> {
        return {(c[0] + i[0] / c[0]) * 0.5, c[1] + 1.0};
      });
  b.result("root", r[0]), b.result("trips", r[1]);
  auto f = b.finish_into_module();
  EXPECT_TRUE(f.ok()) << f.error().to_string();
  return *f;
}

double newton_in_cpp(double a, int64_t max_trips, int64_t& trips) {
  double x = a;
  for (trips = 0; trips < max_trips && std::abs(x * x - a) > 1e-9; ++trips) x = (x + a / x) * 0.5;
  return x;
}

TEST(While, StopsWhereTheConditionOrTheBoundSays) {
  for (int64_t bound : {0, 2, 40}) {
    Module m;
    const FuncId f = newton(m, bound);
    for (double a : {2.0, 9.0, 1e-4}) {
      const HostTensor in({DType::kF64, {}}, std::vector{a});
      auto out = interpret(m, m[f], std::span(&in, 1));
      ASSERT_TRUE(out.ok());
      int64_t trips = 0;
      EXPECT_EQ((*out)[0].at(0), newton_in_cpp(a, bound, trips));
      EXPECT_EQ((*out)[1].at(0), trips);
    }
  }
}

TEST(While, DerivativesGoThroughTheTripsThatRan) {
  Module m;
  const FuncId f = newton(m, 40);
  auto v = vjp_function(m, f), j = jvp_function(m, f);
  ASSERT_TRUE(v.ok() && j.ok()) << (v.ok() ? j.error() : v.error()).to_string();
  for (double a : {2.0, 9.0}) {
    const HostTensor in[] = {HostTensor({DType::kF64, {}}, std::vector{a}),
                             HostTensor({DType::kF64, {}}, std::vector{1.0})};
    for (FuncId d : {*v, *j}) {
      auto out = interpret(m, m[d], in);
      ASSERT_TRUE(out.ok()) << out.error().to_string();
      EXPECT_NEAR(out->back().at(0), 0.5 / std::sqrt(a), 1e-8);
    }
  }
}

TEST(Call, IsItsBody) {
  Module m;
  Builder g(m, "g");
  const Var u = g.param("u", kH), n = g.param("n", {DType::kI64, {}});
  g.result("y", sin(u) * cast(n, DType::kF32)), g.result("n", n + 1.0);
  const FuncId id = *g.finish_into_module();
  FuncId f[2];
  for (int inlined : {0, 1}) {
    Builder b(m, inlined ? "inlined" : "called");
    std::vector<Var> v = {b.param("x", kH), b.param("n", {DType::kI64, {}})};
    const Function body = m[id];
    for (int i = 0; i < 2; ++i) v = inlined ? inline_call(b, body, v) : call(b, id, v);
    b.result("y", v[0]), b.result("n", v[1]);
    f[inlined] = *b.finish_into_module();
  }
  expect_equal_derivatives(m, f[0], f[1]);
}

// A cond in a while in a scan: Collatz steps of every element until 1, with a float that is
// multiplied on the way.
TEST(Nested, CondInWhileInScan) {
  Module m;
  Builder b(m, "collatz");
  const Var n = b.param("n", {DType::kI64, {5}}), x = b.param("x", {DType::kF64, {5}});
  const Var w = b.param("w", {DType::kF64, {}});
  auto r =
      scan(b, {constant(b, 0, DType::kF64)}, {n, x}, {w}, [](Builder& s, Vars c, Vars in, Vars i) {
        const auto out = while_loop(
            s, {in[0], in[1]}, {i[0]}, 200, [](Builder&, Vars v, Vars) { return gt(v[0], 1.0); },
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
        return StepResult{{c[0] + out[1]}, {out[1]}};
      });
  const Var loss = r.carry[0];
  const Var xs[] = {x, w};
  const auto g = grad(loss, xs);
  b.result("loss", loss), b.result("each", r.ys[0]);
  b.result("dx", g[0]), b.result("dw", g[1]);
  auto f = b.finish_into_module();
  ASSERT_TRUE(f.ok()) << f.error().to_string();

  const std::vector<double> ns = {1, 2, 3, 6, 7}, values = {0.5, -1, 2, 0.25, 1};
  const double weight = 0.75;
  const HostTensor in[] = {HostTensor({DType::kI64, {5}}, ns),
                           HostTensor({DType::kF64, {5}}, values),
                           HostTensor({DType::kF64, {}}, std::vector{weight})};
  auto out = interpret(m, m[*f], in);
  ASSERT_TRUE(out.ok()) << out.error().to_string();
  double total = 0, dw = 0;
  for (size_t k = 0; k < 5; ++k) {
    double v = values[k], dv = 1, dvw = 0;  // dual numbers in x and in w
    for (auto n_k = static_cast<int64_t>(ns[k]); n_k > 1;) {
      if (n_k % 2 == 0) {
        dvw = dvw * weight + v, v *= weight, dv *= weight, n_k /= 2;
      } else {
        v += 1, n_k = 3 * n_k + 1;
      }
    }
    EXPECT_DOUBLE_EQ((*out)[1].at(static_cast<int64_t>(k)), v);
    EXPECT_DOUBLE_EQ((*out)[2].at(static_cast<int64_t>(k)), dv);
    total += v, dw += dvw;
  }
  EXPECT_DOUBLE_EQ((*out)[0].at(0), total);
  EXPECT_NEAR((*out)[3].at(0), dw, 1e-14 * std::abs(dw));
}

}  // namespace
}  // namespace tegula
