// order_free_sum: sums of all elements that are the same in any order, and which sums become such.
#include "tegula/passes/order_free_sum.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "tegula/runtime/compile.h"
#include "tests/common/run_plan.h"
#include "tests/passes/passes.h"

namespace tegula {
namespace {

constexpr DType F = DType::kF32;
constexpr int64_t kRows = 8, kColumns = 300;

PassOptions of_a_step(Mode mode = Mode::kExact) {
  PassOptions o;
  o.mode = mode, o.is_step = true;
  return o;
}

FuncId sum_of(Module& m, const Shape& shape, std::vector<int64_t> dims,
              Phase phase = Phase::kForward) {
  Builder b(m, "f");
  const Var x = b.param("x", {F, shape});
  b.set_phase(phase);
  b.result("y", reduce_sum(x, std::move(dims)));
  return finish(b);
}

float sum_of(const std::vector<float>& numbers) {
  Module m;
  const FuncId f = sum_of(m, {kRows, kColumns}, {0, 1});
  EXPECT_TRUE(run(m, f, "order_free_sum", of_a_step()));
  HostTensor x({F, {kRows, kColumns}});
  for (int64_t i = 0; i < x.numel(); ++i) x.put(i, numbers[static_cast<size_t>(i)]);
  const std::vector<HostTensor> in = {x};
  return static_cast<float>((*interpret(m, m[f], in, Arithmetic::kNaive))[0].at(0));
}

std::vector<float> drawn(double spread, double mean, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<float> x(static_cast<size_t>(kRows * kColumns));
  for (float& v : x)
    v = static_cast<float>(mean + normal(random) * std::exp(spread * normal(random)));
  return x;
}

TEST(OrderFreeSum, HasTheSameBitsInAnyOrder) {
  std::mt19937_64 random(1);
  for (const double spread : {0.0, 1.0, 4.0, 10.0}) {
    std::vector<float> x = drawn(spread, 1, 7);
    const float sum = sum_of(x);
    for (int i = 0; i < 8; ++i) {
      std::shuffle(x.begin(), x.end(), random);
      EXPECT_EQ(sum_of(x), sum) << spread;
    }
  }
}

TEST(OrderFreeSum, IsCloserThanTheBound) {
  for (const double spread : {0.0, 1.0, 4.0, 10.0})
    for (const double size : {1.0, 1e-12, 1e9}) {
      std::vector<float> x = drawn(spread, 1, 11);
      double sum = 0, most = 0;
      for (float& v : x)
        v = static_cast<float>(v * size), sum += double{v}, most += std::fabs(double{v});
      EXPECT_NEAR(sum_of(x), sum, std::ldexp(most, -21)) << spread << " " << size;
    }
}

// The sum, or the norm, by the CPU's kernels, which take denormal numbers for 0.
float by_kernels(const std::vector<float>& numbers, bool is_norm) {
  auto m = std::make_shared<Module>();
  Builder b(*m, "f");
  const Var x[] = {b.param("x", {F, {static_cast<int64_t>(numbers.size())}})};
  const OrderFreeSum s = order_free_sum(b, x, {}, is_norm);
  b.result("y", (is_norm ? sqrt(s.sum) : s.sum) * s.scale);
  const FuncId f = finish(b);
  HostTensor in((*m)[f].type((*m)[f].params[0].value));
  for (int64_t i = 0; i < in.numel(); ++i) in.put(i, numbers[static_cast<size_t>(i)]);
  const auto compiled = compile(m, f, {});
  EXPECT_TRUE(compiled.ok()) << compiled.error().to_string();
  return static_cast<float>(test::run_plan(*compiled->plan, {{in}})[0].at(0));
}

// For so many of the smallest normal numbers the squares are far below f32's; the reciprocal of the
// largest is none of its normal numbers.
TEST(OrderFreeSum, IsCloserThanTheBoundAtBothEndsOfF32) {
  std::vector<float> large = drawn(0, 0, 13);
  for (float& v : large) v *= 1e33F;
  large[5] = 3e38F, large[900] = -1e38F;
  for (const auto& x : {std::vector<float>(1 << 20, 1.25e-38F), large}) {
    double sum = 0, most = 0, squares = 0;
    for (const double v : x) sum += v, most += std::fabs(v), squares += v * v;
    EXPECT_NEAR(by_kernels(x, false), sum, std::ldexp(most, -21)) << x[0];
    EXPECT_NEAR(by_kernels(x, true) / std::sqrt(squares), 1, std::ldexp(1.0, -21)) << x[0];
  }
}

TEST(OrderFreeSum, CountsWithoutAnError) {
  std::vector<float> x(static_cast<size_t>(kRows * kColumns));
  EXPECT_EQ(sum_of(x), 0);
  for (size_t i = 0; i < x.size(); i += 3) x[i] = 1;
  EXPECT_EQ(sum_of(x), 800);
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    x[77] = bad;
    EXPECT_FALSE(std::isfinite(sum_of(x))) << bad;
  }
}

// High and low part and the largest element, each by rows and then over these; of one row, at once.
TEST(OrderFreeSum, OfOneRowIsOneSum) {
  for (const int64_t rows : {1, 4}) {
    Module m;
    const FuncId f = sum_of(m, {rows, 6}, {0, 1});
    ASSERT_TRUE(run(m, f, "order_free_sum", of_a_step()));
    EXPECT_EQ(count(m[f], reduce_sum_op), rows == 1 ? 2 : 4);
    EXPECT_EQ(count(m[f], reduce_max_op), rows == 1 ? 1 : 2);
  }
}

// A loss, and nothing that keeps a dim, is a gradient's or is not a step's.
TEST(OrderFreeSum, IsThatOfAllElementsOfAStepInExactAlone) {
  const auto fires = [](const Shape& shape, std::vector<int64_t> dims, const PassOptions& o,
                        Phase phase = Phase::kForward) {
    Module m;
    const FuncId f = sum_of(m, shape, std::move(dims), phase);
    const bool did = run(m, f, "order_free_sum", o);
    EXPECT_FALSE(run(m, f, "order_free_sum", o)) << "twice is once";
    return did;
  };
  EXPECT_TRUE(fires({4, 6}, {0, 1}, of_a_step()));
  EXPECT_TRUE(fires({6}, {0}, of_a_step()));
  EXPECT_FALSE(fires({4, 6}, {0}, of_a_step()));
  EXPECT_FALSE(fires({1}, {0}, of_a_step()));
  EXPECT_FALSE(fires({4, 6}, {0, 1}, of_a_step(Mode::kFast)));
  EXPECT_FALSE(fires({4, 6}, {0, 1}, of_a_step(), Phase::kBackward));
  PassOptions no_step = of_a_step();
  no_step.is_step = false;
  EXPECT_FALSE(fires({4, 6}, {0, 1}, no_step));
}

}  // namespace
}  // namespace tegula
