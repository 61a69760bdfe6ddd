// The elementary functions: error against double in units of the last place, limits, and equal bits
// on every instruction set.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "tegula/kernels/cpu/isa/table.h"
#include "tegula/kernels/cpu/isa/unary.h"

namespace tegula::kernel {
namespace {

struct Case {
  const char* name;
  Unary f;
  double (*truth)(double);
  float lo, hi;  // where the bound holds
  double max_ulp;
};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double gelu(double x) { return x * sigmoid(2 * 0.7978845608028654 * (x + 0.044715 * x * x * x)); }

const Case kCases[] = {
    {"exp", Unary::kExp, std::exp, -87.3f, 88.7f, 1.0},
    {"log", Unary::kLog, std::log, 0x1p-126f, 0x1.fffffep127f, 1.5},
    {"tanh", Unary::kTanh, std::tanh, -20, 20, 2.0},
    {"sigmoid", Unary::kSigmoid, sigmoid, -87, 90, 2.5},
    {"erf", Unary::kErf, std::erf, -6, 6, 1.6},
    {"sin", Unary::kSin, std::sin, -1e5f, 1e5f, 1.6},
    {"cos", Unary::kCos, std::cos, -1e5f, 1e5f, 1.6},
    {"sin far", Unary::kSin, std::sin, 1e5f, 1e30f, 1.6},
    {"rsqrt", Unary::kRsqrt, [](double x) { return 1 / std::sqrt(x); }, 0x1p-126f, 0x1p127f, 1.5},
    // Three roundings of the argument 2u (3.8 at x = -2) on top of the quotient's.
    {"gelu", Unary::kGelu, gelu, -2, 100, 6.0},
    {"silu", Unary::kSilu, [](double x) { return x * sigmoid(x); }, -87, 100, 2.5},
};

// Values spread over the floats between lo and hi, and over the reals.
std::vector<float> samples(float lo, float hi, int n) {
  const auto key = [](float f) {
    const int32_t i = std::bit_cast<int32_t>(f);
    return static_cast<int64_t>(i < 0 ? INT32_MIN - int64_t{i} : i);
  };
  const auto value = [](int64_t k) {
    return std::bit_cast<float>(static_cast<int32_t>(k < 0 ? INT32_MIN - k : k));
  };
  std::vector<float> x;
  const int64_t a = key(lo), b = key(hi);
  for (int i = 0; i <= n; ++i) x.push_back(value(a + (b - a) / n * i));
  for (int i = 0; i <= n; ++i) x.push_back(lo + (hi - lo) * (static_cast<float>(i) / n));
  return x;
}

std::vector<float> apply(const IsaTable& table, Unary f, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  table.unary({f, x.data(), y.data(), static_cast<int64_t>(x.size())});
  return y;
}

TEST(Vecmath, IsWithinItsBound) {
  for (const Case& c : kCases) {
    const auto x = samples(c.lo, c.hi, 200000);
    const auto y = apply(isa_table(), c.f, x);
    double worst = 0;
    float at = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i] != 0 && std::fabs(x[i]) < 0x1p-126f) continue;
      const double t = c.truth(x[i]);
      if (std::fabs(t) < 0x1p-126) continue;
      const int e = std::max(std::ilogb(t), -126);
      const double ulp = std::fabs(y[i] - t) / std::ldexp(1.0, e - 23);
      if (!(ulp <= worst)) worst = ulp, at = x[i];
    }
    EXPECT_LE(worst, c.max_ulp) << c.name << " at " << at;
    if (std::getenv("TEGULA_TEST_VERBOSE")) std::printf("%s: %.3f ulp at %g\n", c.name, worst, at);
  }
}

TEST(Vecmath, HasExactLimits) {
  const float inf = INFINITY, nan = NAN;
  const struct {
    Unary f;
    float x, y;
  } limits[] = {
      {Unary::kExp, -inf, 0},      {Unary::kExp, inf, inf},      {Unary::kExp, 0, 1},
      {Unary::kExp, 89, inf},      {Unary::kExp, -200, 0},       {Unary::kExp, nan, nan},
      {Unary::kLog, 0, -inf},      {Unary::kLog, 1, 0},          {Unary::kLog, inf, inf},
      {Unary::kLog, -1, nan},      {Unary::kLog, nan, nan},      {Unary::kTanh, inf, 1},
      {Unary::kTanh, -inf, -1},    {Unary::kTanh, -0.0f, -0.0f}, {Unary::kTanh, nan, nan},
      {Unary::kSigmoid, inf, 1},   {Unary::kSigmoid, -inf, 0},   {Unary::kSigmoid, 0, 0.5f},
      {Unary::kErf, inf, 1},       {Unary::kErf, -inf, -1},      {Unary::kErf, nan, nan},
      {Unary::kSin, 0, 0},         {Unary::kSin, inf, nan},      {Unary::kCos, 0, 1},
      {Unary::kCos, nan, nan},     {Unary::kRsqrt, 0, inf},      {Unary::kRsqrt, 4, 0.5f},
      {Unary::kGelu, inf, inf},    {Unary::kGelu, -inf, -0.0f},  {Unary::kGelu, nan, nan},
      {Unary::kSilu, -inf, -0.0f}, {Unary::kSilu, inf, inf},     {Unary::kSilu, nan, nan},
  };
  for (const auto& l : limits) {
    const float y = apply(isa_table(), l.f, {l.x})[0];
    if (std::isnan(l.y)) {
      EXPECT_TRUE(std::isnan(y)) << static_cast<int>(l.f) << " of " << l.x << " gave " << y;
    } else {
      EXPECT_EQ(std::bit_cast<uint32_t>(y), std::bit_cast<uint32_t>(l.y))
          << static_cast<int>(l.f) << " of " << l.x << " gave " << y;
    }
  }
}

TEST(Vecmath, GivesEqualBitsOnEveryInstructionSet) {
  const IsaTable* portable = isa_table_of(Isa::kPortable);
  for (Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    const IsaTable* table = isa_table_of(isa);
    if (table == nullptr) continue;
    for (const Case& c : kCases) {
      // Odd length and mixed magnitudes: lanes group differently on each set.
      auto x = samples(-INFINITY, INFINITY, 50001);
      const auto a = apply(*portable, c.f, x), b = apply(*table, c.f, x);
      for (size_t i = 0; i < x.size(); ++i) {
        if (std::isnan(a[i]) && std::isnan(b[i])) continue;
        ASSERT_EQ(std::bit_cast<uint32_t>(a[i]), std::bit_cast<uint32_t>(b[i]))
            << c.name << " of " << x[i] << " on " << isa_name(isa);
      }
    }
  }
}

}  // namespace
}  // namespace tegula::kernel
