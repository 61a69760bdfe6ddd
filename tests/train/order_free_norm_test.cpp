// order_free_norm: close to the norm in f64, the same for every order of the elements.
#include "tegula/train/order_free_norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "tegula/ir/interpret.h"

namespace tegula {
namespace {

// The norm of two gradients, a matrix and a vector, that hold the numbers in this order.
float norm_of(const std::vector<float>& numbers) {
  const auto n = static_cast<int64_t>(numbers.size()), rows = n / 8;
  Module m;
  Builder b(m, "f");
  const Var g[] = {b.param("matrix", {DType::kF32, {rows, 7}}),
                   b.param("vector", {DType::kF32, {n - rows * 7}})};
  const std::string_view scopes[] = {"a", "b"};
  b.result("norm", order_free_norm(b, g, scopes));
  const auto f = b.finish_into_module();
  EXPECT_TRUE(f.ok()) << f.error().to_string();
  std::vector<HostTensor> in;
  size_t next = 0;
  for (const Param& p : m[*f].params) {
    in.emplace_back(m[*f].type(p.value));
    for (int64_t i = 0; i < in.back().numel(); ++i) in.back().put(i, numbers[next++]);
  }
  return static_cast<float>((*interpret(m, m[*f], in, Arithmetic::kNaive))[0].at(0));
}

std::vector<float> drawn(double spread, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<float> x(4096);
  for (float& v : x) v = static_cast<float>(normal(random) * std::exp(spread * normal(random)));
  return x;
}

TEST(OrderFreeNorm, HasTheSameBitsInAnyOrder) {
  std::mt19937_64 random(1);
  for (const double spread : {0.0, 1.0, 4.0, 10.0}) {
    std::vector<float> x = drawn(spread, 7);
    const float norm = norm_of(x);
    for (int i = 0; i < 8; ++i) {
      std::shuffle(x.begin(), x.end(), random);
      EXPECT_EQ(norm_of(x), norm) << spread;
    }
  }
}

TEST(OrderFreeNorm, IsCloserThanTheBound) {
  for (const double spread : {0.0, 1.0, 4.0, 10.0})
    for (const double size : {1.0, 1e-12, 1e9}) {
      std::vector<float> x = drawn(spread, 11);
      double sum = 0;
      for (float& v : x) v = static_cast<float>(v * size), sum += double{v} * double{v};
      EXPECT_NEAR(norm_of(x) / std::sqrt(sum), 1, std::ldexp(1.0, -21)) << spread << " " << size;
    }
}

TEST(OrderFreeNorm, OfNothingIsNothingAndOfNoNumbersNone) {
  std::vector<float> x(64);
  EXPECT_EQ(norm_of(x), 0);
  x[5] = 3, x[60] = -4;
  EXPECT_EQ(norm_of(x), 5);
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()})
    for (const size_t at : {size_t{5}, size_t{63}}) {
      std::vector<float> y = x;
      y[at] = bad;
      EXPECT_FALSE(norm_of(y) < std::numeric_limits<float>::max()) << bad << " at " << at;
    }
}

}  // namespace
}  // namespace tegula
