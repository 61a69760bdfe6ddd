// The instructions that are computed in f64 for f32 and narrower floats: all but correctly rounded,
// with exact limits, signs of zero, and conventions of division; integers as base/integer_math.h
// says.
#include <bit>
#include <cmath>

#include "tegula/base/integer_math.h"
#include "tegula/base/real.h"
#include "tests/tile/harness.h"

namespace tegula::tile {
namespace {

constexpr DType F = DType::kF32;
constexpr double kInf = HUGE_VAL;

std::vector<float> apply(Op op, const std::vector<float>& a, const std::vector<float>& b = {}) {
  Builder p(1);
  const Reg x = p.load(p.input(F));
  p.store(p.output(F), b.empty() ? p.unary(op, x) : p.binary(op, x, p.load(p.input(F))));
  const Program program = p.finish().value();
  const auto n = static_cast<int64_t>(a.size());
  Tensor ta(F, {n}), tb(F, {n}), y(F, {n});
  std::vector<TensorRef> in = {ta.ref()};
  if (!b.empty()) in.push_back(tb.ref());
  for (size_t i = 0; i < a.size(); ++i) {
    ta.ref().as<float>()[i] = a[i];
    if (!b.empty()) tb.ref().as<float>()[i] = b[i];
  }
  run_kernel(program, in, {y.ref()});
  return {y.ref().as<float>(), y.ref().as<float>() + n};
}

// Values spread over the floats between lo and hi, and over the reals.
std::vector<float> spread(float lo, float hi, int n) {
  const auto key = [](float f) {
    const auto i = std::bit_cast<int32_t>(f);
    return static_cast<int64_t>(i < 0 ? INT32_MIN - int64_t{i} : i);
  };
  std::vector<float> x;
  const int64_t a = key(lo), b = key(hi);
  for (int i = 0; i <= n; ++i) {
    const int64_t k = a + (b - a) / n * i;
    x.push_back(std::bit_cast<float>(static_cast<int32_t>(k < 0 ? INT32_MIN - k : k)));
    x.push_back(lo + (hi - lo) * (static_cast<float>(i) / static_cast<float>(n)));
  }
  return x;
}

// Error in units of the last place of an f32; 0 where the truth is no normal number.
double ulps(float got, double truth) {
  if (std::fabs(truth) < 0x1p-126 || std::fabs(truth) > 0x1.fffffep127) return 0;
  const double e = std::fabs(got - truth) / std::ldexp(1.0, std::ilogb(truth) - 23);
  return e == e ? e : kInf;
}

// Half an ulp is a correctly rounded result; the f64 below it adds next to nothing.
constexpr double kRounded = 0.5 + 0x1p-10;

TEST(TileFunctions, AreRoundedFromF64) {
  const struct {
    Op op;
    double (*truth)(double);
    float lo, hi;
  } cases[] = {
      {Op::kExp2, std::exp2, -126, 127.9f},
      {Op::kExpm1, std::expm1, -100, 88.7f},
      {Op::kLog2, std::log2, 0x1p-126f, 3e38f},
      {Op::kLog10, std::log10, 0x1p-126f, 3e38f},
      {Op::kLog1p, std::log1p, -0.9999f, 3e38f},
      {Op::kTan, std::tan, -2e6f, 2e6f},
      {Op::kAsin, std::asin, -1, 1},
      {Op::kAcos, std::acos, -1, 1},
      {Op::kAtan, std::atan, -1e38f, 1e38f},
      {Op::kSinh, std::sinh, -89, 89},
      {Op::kCosh, std::cosh, -89, 89},
      {Op::kAsinh, std::asinh, -1e38f, 1e38f},
      {Op::kAcosh, std::acosh, 1, 3e38f},
      {Op::kAtanh, std::atanh, -1, 1},
      {Op::kErfc, std::erfc, -6, 9.1f},
  };
  for (const auto& c : cases) {
    const auto x = spread(c.lo, c.hi, 40000), y = apply(c.op, x);
    double worst = 0;
    float at = 0;
    for (size_t i = 0; i < x.size(); ++i)
      if (const double e = x[i] != 0 && std::fabs(x[i]) < 0x1p-126f ? 0 : ulps(y[i], c.truth(x[i]));
          e > worst)
        worst = e, at = x[i];
    EXPECT_LE(worst, kRounded) << op_info(c.op).name << " of " << at;
  }
}

TEST(TileFunctions, OfTwoOperandsAreRoundedFromF64) {
  const struct {
    Op op;
    double (*truth)(double, double);
  } cases[] = {{Op::kAtan2, std::atan2},
               {Op::kHypot, std::hypot},
               {Op::kFmod, std::fmod},
               {Op::kRemainder, real::remainder},
               {Op::kFloorDivide, real::floor_divide}};
  std::vector<float> a = spread(-1e38f, 1e38f, 211), b = spread(-50, 50, 97), x, y;
  for (const float p : a)
    for (const float q : b)
      if (std::fabs(p) >= 0x1p-126f && std::fabs(q) >= 0x1p-126f)
        x.push_back(p), y.push_back(q), x.push_back(q), y.push_back(p);
  for (const auto& c : cases) {
    const auto got = apply(c.op, x, y);
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_LE(ulps(got[i], c.truth(x[i], y[i])), kRounded)
          << op_info(c.op).name << " of " << x[i] << " and " << y[i] << " is " << got[i];
  }
}

void expect_bits(Op op, std::vector<float> a, std::vector<float> b, std::vector<float> want) {
  const auto got = apply(op, a, b);
  for (size_t i = 0; i < want.size(); ++i) {
    const bool both_nan = want[i] != want[i] && got[i] != got[i];
    EXPECT_TRUE(both_nan || std::bit_cast<uint32_t>(got[i]) == std::bit_cast<uint32_t>(want[i]))
        << op_info(op).name << " of " << a[i] << (b.empty() ? "" : cat(" and ", b[i])) << " is "
        << got[i] << ", should be " << want[i];
  }
}

TEST(TileFunctions, HaveExactLimits) {
  const float inf = INFINITY, nan = NAN, pi = 3.14159265f, half_pi = 1.57079637f;
  const auto one = [&](Op op, std::vector<float> x, std::vector<float> y) {
    expect_bits(op, std::move(x), {}, std::move(y));
  };
  one(Op::kRound, {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, inf, nan, 8388609},
      {0, 2, 2, -0.f, -2, inf, nan, 8388609});
  one(Op::kTrunc, {0.9f, -0.9f, -2.5f, inf, nan}, {0, -0.f, -2, inf, nan});
  one(Op::kExp2, {3, -2, 0, inf, -inf, 200, -200, nan}, {8, 0.25f, 1, inf, 0, inf, 0, nan});
  one(Op::kExpm1, {0, -0.f, inf, -inf, 100, -200, nan, 1e-20f},
      {0, -0.f, inf, -1, inf, -1, nan, 1e-20f});
  one(Op::kLog2, {8, 1, 0, -1, inf, nan, 0.125f}, {3, 0, -inf, nan, inf, nan, -3});
  one(Op::kLog10, {1000, 1, 0, -1, inf, nan, 1e10f}, {3, 0, -inf, nan, inf, nan, 10});
  one(Op::kLog1p, {0, -0.f, -1, -2, inf, nan, 1e-20f}, {0, -0.f, -inf, nan, inf, nan, 1e-20f});
  one(Op::kTan, {0, -0.f, inf, nan}, {0, -0.f, nan, nan});
  one(Op::kAsin, {1, -1, 0, -0.f, 1.1f, nan}, {half_pi, -half_pi, 0, -0.f, nan, nan});
  one(Op::kAcos, {1, -1, 0, 1.1f, nan}, {0, pi, half_pi, nan, nan});
  one(Op::kAtan, {inf, -inf, 0, -0.f, nan}, {half_pi, -half_pi, 0, -0.f, nan});
  one(Op::kSinh, {inf, -inf, 0, -0.f, nan, 90}, {inf, -inf, 0, -0.f, nan, inf});
  one(Op::kCosh, {inf, -inf, 0, nan}, {inf, inf, 1, nan});
  one(Op::kAsinh, {inf, -inf, 0, -0.f, nan}, {inf, -inf, 0, -0.f, nan});
  one(Op::kAcosh, {1, 0.5f, inf, -inf, nan}, {0, nan, inf, nan, nan});
  one(Op::kAtanh, {1, -1, 0, -0.f, 2, inf, nan}, {inf, -inf, 0, -0.f, nan, nan, nan});
  one(Op::kErfc, {0, inf, -inf, 20, nan}, {1, 0, 2, 0, nan});
  expect_bits(
      Op::kAtan2, {0, 0, -0.f, -0.f, 1, -1, inf, inf, -inf, 1, 1, nan, 0},
      {1, -1, 1, -1, 0, 0, inf, -inf, -inf, inf, -inf, 1, nan},
      {0, pi, -0.f, -pi, half_pi, -half_pi, pi / 4, 3 * pi / 4, -3 * pi / 4, 0, pi, nan, nan});
  expect_bits(Op::kHypot, {3e38f, inf, nan, 0, 3}, {1e38f, nan, 1, -0.f, -4},
              {3.1622777e38f, inf, nan, 0, 5});
  expect_bits(Op::kCopysign, {1, -1, nan, 0}, {-0.f, 2, -1, -1}, {-1, 1, nan, -0.f});
}

// As NumPy gives them.
TEST(TileFunctions, DivideAsPython) {
  const float inf = INFINITY, nan = NAN;
  const std::vector<float> a = {-4, 4, -7, 7, inf, 1, -1, 0, -0.f, 1, 0, -1, inf, 2.5f, nan, 1},
                           b = {2, -2, 2, -2, 2, inf, inf, -3, 3, 0, 0, 0, inf, 0.1f, 0, nan};
  expect_bits(Op::kFmod, a, b,
              {-0.f, 0, -1, 1, nan, 1, -1, 0, -0.f, nan, nan, nan, nan, 0.0999999627f, nan, nan});
  expect_bits(Op::kRemainder, a, b,
              {0, -0.f, 1, -1, nan, 1, inf, -0.f, 0, nan, nan, nan, nan, 0.0999999627f, nan, nan});
  expect_bits(Op::kFloorDivide, a, b,
              {-2, -2, -4, -4, nan, 0, -1, -0.f, -0.f, inf, nan, -inf, nan, 24, nan, nan});
}

int64_t integer_op(DType t, Op op, int64_t a, int64_t b) {
  Builder p(1);
  const Reg x = p.load(p.input(t));
  p.store(p.output(t), p.binary(op, x, p.load(p.input(t))));
  const Program program = p.finish().value();
  Tensor ta(t, {1}), tb(t, {1}), y(t, {1});
  ta.set(0, static_cast<double>(a)), tb.set(0, static_cast<double>(b));
  run_kernel(program, {ta.ref(), tb.ref()}, {y.ref()});
  return static_cast<int64_t>(y.get(0));
}

TEST(TileFunctions, OfIntegersAreDefinedEverywhere) {
  const struct {
    DType t;
    Op op;
    int64_t a, b, y;
  } cases[] = {
      {DType::kI32, Op::kFmod, -7, 2, -1},
      {DType::kI32, Op::kFmod, 7, 0, 7},
      {DType::kI32, Op::kFmod, INT32_MIN, -1, 0},
      {DType::kI32, Op::kRemainder, -7, 2, 1},
      {DType::kI32, Op::kRemainder, 7, -2, -1},
      {DType::kI32, Op::kRemainder, -5, 0, -5},
      {DType::kI32, Op::kFloorDivide, -7, 2, -4},
      {DType::kI32, Op::kFloorDivide, 7, 0, INT32_MAX},
      {DType::kI32, Op::kFloorDivide, -7, 0, INT32_MIN},
      {DType::kU8, Op::kFloorDivide, 7, 0, 255},
      {DType::kI8, Op::kFloorDivide, -7, 0, -128},
      {DType::kI8, Op::kFloorDivide, 0, 0, 0},
      {DType::kI8, Op::kFloorDivide, -128, -1, -128},
      {DType::kI32, Op::kPow, 3, 4, 81},
      {DType::kI32, Op::kPow, -2, 31, INT32_MIN},
      {DType::kI32, Op::kPow, 2, -1, 0},
      {DType::kI32, Op::kPow, -1, -3, -1},
      {DType::kI8, Op::kPow, 7, 3, 343 - 256},
      {DType::kI8, Op::kPow, 100, 10, 0},
      {DType::kI8, Op::kBitAnd, -2, 7, 6},
      {DType::kU8, Op::kBitXor, 255, 15, 240},
      {DType::kBool, Op::kBitXor, 1, 1, 0},
      {DType::kBool, Op::kBitOr, 0, 1, 1},
      {DType::kI8, Op::kShiftLeft, 64, 1, -128},
      {DType::kI8, Op::kShiftLeft, 1, 8, 0},
      {DType::kI32, Op::kShiftLeft, 1, 31, INT32_MIN},
      {DType::kI32, Op::kShiftLeft, 1, -1, 0},
      {DType::kI32, Op::kShiftRight, -5, 1, -3},
      {DType::kI32, Op::kShiftRight, -5, 99, -1},
      {DType::kU8, Op::kShiftRight, 255, 4, 15},
  };
  for (const auto& c : cases)
    EXPECT_EQ(integer_op(c.t, c.op, c.a, c.b), c.y)
        << op_info(c.op).name << " " << dtype_name(c.t) << " of " << c.a << " and " << c.b;
}

TEST(TileFunctions, BitsAreOfIntegersOnly) {
  Builder b(1);
  const Reg x = b.load(b.input(F));
  b.store(b.output(F), b.binary(Op::kBitAnd, x, x));
  const auto p = b.finish();
  ASSERT_FALSE(p.ok());
  EXPECT_NE(p.error().message.find("is for integers, not f32"), std::string::npos)
      << p.error().message;
}

}  // namespace
}  // namespace tegula::tile
