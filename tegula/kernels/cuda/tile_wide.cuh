// Functions of f32 that are computed in f64, with the bits of the CPU's:
// kernels/cpu/isa/wide_math.h lane by lane, of additions, multiplications, divisions, square roots
// and bits only. What the C library does there (tan beyond 1e6), CUDA's f64 function does here;
// fmod is exact in both.
#pragma once

#include "tegula/kernels/cuda/tile_types.cuh"

namespace tegula::cuda::tile::wide {

constexpr double kShifter = 0x1.8p52;
constexpr double kLn2 = 0x1.62e42fefa39efp-1, kLog2E = 0x1.71547652b82fep+0,
                 kLog10E = 0x1.bcb7b1526e50ep-2, kHalfPi = 0x1.921fb54442d18p+0;

__device__ inline double inf() { return as_double(0x7ff0000000000000u); }
__device__ inline double nan() { return as_double(0x7ff8000000000000u); }
__device__ inline double abs(double x) { return as_double(bits(x) & 0x7fffffffffffffffu); }
__device__ inline double copysign(double x, double s) {
  return as_double((bits(x) & 0x7fffffffffffffffu) | (bits(s) & 0x8000000000000000u));
}
__device__ inline bool is_negative(double x) { return bits(x) >> 63 != 0; }  // -0, too
// To the nearest integer, |x| < 2^51; its bits below 2^52 are that integer, biased.
__device__ inline double nearest(double x) { return (x + kShifter) - kShifter; }
__device__ inline double trunc(double x) {  // |x| < 2^51
  const double a = abs(x), n = nearest(a);
  return copysign(n - (n > a ? 1.0 : 0.0), x);
}
__device__ inline double floor(double x) {  // any x
  const double n = nearest(x), down = n - (n > x ? 1.0 : 0.0);
  return abs(x) < 0x1p51 ? copysign(down, x) : x;
}

// c0 + x·(c1 + x·(…)), from the inside.
__device__ inline double polynomial(double, double c) { return c; }
template <class... Terms>
__device__ double polynomial(double x, double c, Terms... terms) {
  return polynomial(x, terms...) * x + c;
}

// e^x = scale·(1 + p), for x clamped to what f32 can tell from 0 and inf.
struct Exp {
  double p, scale;
};
// of n + r, with e^r by its series; n an integer in [-1000, 1000] says the power of 2
__device__ inline Exp exp_parts(double n, double r) {
  const u64 power = bits(n + kShifter) - 0x4338000000000000u + 1023u;
  const double series =
      polynomial(r, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320,
                 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600);
  return {r + r * r * series, as_double(power << 52)};
}
__device__ inline double clamped(double x) { return x < -300.0 ? -300.0 : x > 300.0 ? 300.0 : x; }
__device__ inline Exp exp_parts(double x) {
  x = clamped(x);
  const double n = nearest(x * kLog2E);
  return exp_parts(n, (x - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33);
}
__device__ inline double exp(double x) {
  const Exp e = exp_parts(x);
  return e.scale + e.scale * e.p;
}
__device__ inline double expm1(double x) {
  const Exp e = exp_parts(x);
  return x == 0 ? x : e.scale * e.p + (e.scale - 1);  // keeps -0
}
__device__ inline double exp2(double x) {
  x = clamped(x);
  const double n = nearest(x);
  const Exp e = exp_parts(n, (x - n) * kLn2);
  return e.scale + e.scale * e.p;
}

// x = 2^e·m with m in [√½, √2), for normal x > 0, and log m.
struct Log {
  double e, log_m;
};
__device__ inline Log log_parts(double x) {
  const u64 u = bits(x);
  const u64 e = (u + (0x3ff0000000000000u - 0x3fe6a09e667f3bcdu)) >> 52;  // + 1023
  const double f = as_double(u - ((e - 1023u) << 52)) - 1;
  const double s = f / (f + 2), z = s * s;
  const double exponent = as_double(e + 0x4338000000000000u) - (kShifter + 1023);
  const double series =
      polynomial(z, 1.0 / 3, 1.0 / 5, 1.0 / 7, 1.0 / 9, 1.0 / 11, 1.0 / 13, 1.0 / 15, 1.0 / 17);
  return {exponent, 2 * s + 2 * s * z * series};
}
// The logarithm y of x, or its limit where x is 0, negative or not finite.
__device__ inline double log_limits(double x, double y) {
  if (x > 0 && x < inf()) return y;
  return x == 0 ? -inf() : x == inf() ? inf() : nan();
}
__device__ inline double log2(double x) {
  const Log l = log_parts(x);
  return log_limits(x, l.e + l.log_m * kLog2E);
}
__device__ inline double log10(double x) {
  const Log l = log_parts(x);
  return log_limits(x, (l.e * kLn2 + l.log_m) * kLog10E);
}
__device__ inline double log1p(double x) {
  const double u = x + 1;
  // The part that rounding took from u: nothing where x is larger than 1 that would matter.
  const double lost = abs(x) < 1 ? x - (u - 1) : 0.0;
  const Log l = log_parts(u);
  const double y = log_limits(u, l.e * kLn2 + (l.log_m + lost / u));
  return x == 0 ? x : y;
}

__device__ inline double sinh(double x) {
  const double t = expm1(abs(x));
  return copysign((t + t / (t + 1)) * 0.5, x);
}
__device__ inline double cosh(double x) {
  const double e = exp(abs(x));
  return (e + 1 / e) * 0.5;
}
__device__ inline double asinh(double x) {
  const double a = abs(x), a2 = a * a;
  const double y = log1p(a + a2 / (::sqrt(a2 + 1) + 1));
  return copysign(a < inf() ? y : a, x);
}
__device__ inline double acosh(double x) {
  const double t = x - 1, y = log1p(t + ::sqrt(t * (t + 2)));
  return t < 0 ? nan() : y;
}
__device__ inline double atanh(double x) {
  const double a = abs(x);
  return copysign(log1p(2 * a / (1 - a)) * 0.5, x);
}

// The angle of (x, y) with x, y >= 0, not both 0 nor both inf: in [0, π/2].
__device__ inline double angle(double y, double x) {
  const bool steep = y > x * 2.414213562373095, flat = y <= x * 0.41421356237309503;
  const double num = flat ? y : steep ? -x : y - x;
  const double den = flat ? x : steep ? y : y + x;
  const double base = flat ? 0.0 : steep ? kHalfPi : kHalfPi / 2;
  const double t = num / den;
  // Minimax of atan(√z)/√z up to tan²(π/8): 2^-53.
  return base + t * polynomial(t * t, 0x1p+0, -0x1.55555555551dbp-2, 0x1.9999999934100p-3,
                               -0x1.2492490052926p-3, 0x1.c71c647592357p-4, -0x1.745ba83b8a69bp-4,
                               0x1.3afae6a2b3775p-4, -0x1.0ffafaf07177fp-4, 0x1.d1f3b7028794bp-5,
                               -0x1.64158043652edp-5, 0x1.5a04364b4e9d9p-6);
}
__device__ inline double atan(double x) { return copysign(angle(abs(x), 1), x); }
// NaN beyond [-1, 1], as the root's.
__device__ inline double asin(double x) {
  return copysign(angle(abs(x), ::sqrt((1 - x) * (1 + x))), x);
}
__device__ inline double acos(double x) {
  const double half = angle(::sqrt(1 - x), ::sqrt(1 + x));
  return half + half;
}
__device__ inline double atan2(double y, double x) {
  double a = abs(x), b = abs(y);
  const bool both_inf = a == inf() && b == inf(), both_zero = a == 0 && b == 0;
  a = both_inf || both_zero ? 1.0 : a;
  b = both_inf ? 1.0 : both_zero ? 0.0 : b;
  const double t = angle(b, a);
  return copysign(is_negative(x) ? 2 * kHalfPi - t : t, y);
}

// sin r / cos r, or -cos r / sin r, for r = x - n·π/2 with n up to 2^20.
__device__ inline double tan(double x) {
  if (x == 0) return x;
  if (!(abs(x) < 1e6)) return ::tan(x);
  const double n = nearest(x * (1 / kHalfPi));
  // π/2 in three parts, of 33 bits and of 33 bits: their products with n are exact.
  const double r = ((x - n * 0x1.921fb544p+0) - n * 0x1.0b4611a6p-34) - n * 0x1.3198a2e037073p-69;
  const double z = r * r;
  const double s = r + r * z *
                           polynomial(z, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880,
                                      -1.0 / 39916800, 1.0 / 6227020800.0, -1.0 / 1307674368e3);
  const double c =
      1 + z * polynomial(z, -1.0 / 2, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800,
                         1.0 / 479001600, -1.0 / 87178291200, 1.0 / 20922789888e3);
  const bool odd = (bits(n + kShifter) & 1) != 0;
  return (odd ? -c : s) / (odd ? s : c);
}

// e^(-x²)·t·g(t), t = 4 / (4 + |x|): g is a fit in t - 19/30, of 2^-43.
__device__ inline double erfc(double x) {
  double a = abs(x);
  a = a > 11 ? 11.0 : a;  // 0, long before
  const double t = 4 / (a + 4);
  const double g = polynomial(t - 0x1.4444444444444p-1, 0x1.6c7028f554abbp-2, 0x1.88d48e1847c06p-1,
                              0x1.62fbd3f03a791p+0, 0x1.0d35d98d5ea95p+1, 0x1.53f9844d4e5fcp+1,
                              0x1.5e4bf2d33c9ebp+1, 0x1.19dead4aa3233p+1, 0x1.3de7cd42e59d4p+0,
                              0x1.3add3daf62fffp-2, -0x1.996b66e0b4ab4p-3, -0x1.c957f79298a51p-3,
                              -0x1.11edb91125968p-5, 0x1.31024f56122a5p-4, 0x1.35a5768554960p-5,
                              -0x1.39240f85ae11ap-6, -0x1.151e3410251d5p-6);
  const double y = t * g * exp(-a * a);
  return is_negative(x) ? 2 - y : y;
}

__device__ inline double hypot(double a, double b) {
  const double x = abs(a), y = abs(b);
  return x == inf() || y == inf() ? inf() : ::sqrt(x * x + y * y);
}

// A quotient below 2^29 of two f32 is no integer unless it is exact, so that a - trunc(a/b)·b has
// no error at all.
__device__ inline double fmod(double a, double b) {
  const double q = a / b;
  if (abs(q) < 0x1p29 && abs(b) < inf()) return copysign(a - trunc(q) * b, a);
  return ::fmod(a, b);
}
// The divisor's sign, also of 0.
__device__ inline double remainder(double a, double b) {
  const double r = fmod(a, b);
  const double moved = is_negative(r) != is_negative(b) ? r + b : r;
  return r == 0 ? copysign(r, b) : moved;
}
// ⌊a/b⌋ as Python's //: of inf NaN, as its remainder is; by inf -1 or 0; by 0 the quotient.
__device__ inline double floor_divide(double a, double b) {
  const double q = a / b;
  if (b == 0 || b != b || a != a) return q;
  if (abs(a) == inf()) return nan();
  if (abs(b) == inf()) return a != 0 && is_negative(a) != is_negative(b) ? -1.0 : q;
  return floor(q);
}

}  // namespace tegula::cuda::tile::wide
