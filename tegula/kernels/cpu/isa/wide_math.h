// Elementary functions of f32 computed in f64, a few lanes at a time: what need not be as fast as
// vecmath.h's is nearly always correctly rounded instead (each is within 2^-40 before it is rounded
// to f32), and keeps its relative error near every zero. Built of additions, multiplications,
// divisions, square roots and bits only, so that all instruction sets agree to the bit. NaN in
// gives NaN out; limits are exact. tests/tile/functions_test.cpp measures them.
#pragma once

#include "tegula/kernels/cpu/isa/vec.h"

namespace tegula::kernel::TEGULA_ISA_NS {

#if defined(TEGULA_ISA_AVX512)
inline constexpr int kWide = 8;
#elif defined(TEGULA_ISA_AVX2)
inline constexpr int kWide = 4;
#else
inline constexpr int kWide = 2;
#endif
typedef double Wd __attribute__((vector_size(8 * kWide)));
typedef int64_t Wi __attribute__((vector_size(8 * kWide)));  // also masks: all bits or none
typedef uint64_t Wu __attribute__((vector_size(8 * kWide)));
typedef float Narrow __attribute__((vector_size(4 * kWide)));

inline constexpr double kWideInf = __builtin_inf();

TEGULA_VEC Wd wide(double x) { return Wd{} + x; }
TEGULA_VEC Wd load_wide(const float* p) {
  Narrow a;
  std::memcpy(&a, p, sizeof a);
  return __builtin_convertvector(a, Wd);
}
TEGULA_VEC void store_wide(float* p, Wd x) {
  const Narrow a = __builtin_convertvector(x, Narrow);
  std::memcpy(p, &a, sizeof a);
}
TEGULA_VEC Wd abs(Wd x) { return reinterpret_cast<Wd>(reinterpret_cast<Wi>(x) & INT64_MAX); }
TEGULA_VEC Wd copysign(Wd x, Wd s) {
  return reinterpret_cast<Wd>((reinterpret_cast<Wi>(x) & INT64_MAX) |
                              (reinterpret_cast<Wi>(s) & INT64_MIN));
}
TEGULA_VEC Wi is_negative(Wd x) { return reinterpret_cast<Wi>(x) < 0; }  // -0, too
TEGULA_VEC Wd select(Wi m, Wd a, Wd b) { return m ? a : b; }
TEGULA_VEC bool any(Wi m) {
  int64_t bits = 0;
  for (int i = 0; i < kWide; ++i) bits |= m[i];
  return bits != 0;
}
TEGULA_VEC_LONG Wd sqrt(Wd x) {
  for (int i = 0; i < kWide; ++i) x[i] = __builtin_sqrt(x[i]);
  return x;
}
// To the nearest integer, |x| < 2^51; its bits below 2^52 are that integer, biased.
inline constexpr double kShifter = 0x1.8p52;
TEGULA_VEC Wd nearest(Wd x) { return (x + kShifter) - kShifter; }
TEGULA_VEC Wd trunc(Wd x) {  // |x| < 2^51
  const Wd a = abs(x), n = nearest(a);
  return copysign(n - select(n > a, wide(1), wide(0)), x);
}
TEGULA_VEC Wd floor(Wd x) {  // any x
  const Wd n = nearest(x), down = n - select(n > x, wide(1), wide(0));
  return select(abs(x) < 0x1p51, copysign(down, x), x);
}

// Σ c_k·x^k
template <int n>
TEGULA_VEC Wd polynomial(Wd x, const double (&c)[n]) {
  Wd p = wide(c[n - 1]);
#pragma GCC unroll unrolled(24)
  for (int k = n - 2; k >= 0; --k) p = p * x + c[k];
  return p;
}

// e^x = scale·(1 + p), for x clamped to what f32 can tell from 0 and inf.
struct WideExp {
  Wd p, scale;
};
// of n + r, with e^r by its series; n an integer in [-1000, 1000] says the power of 2
TEGULA_VEC_LONG WideExp exp_parts(Wd n, Wd r) {
  static constexpr double kTerms[] = {1.0 / 2,       1.0 / 6,        1.0 / 24,       1.0 / 120,
                                      1.0 / 720,     1.0 / 5040,     1.0 / 40320,    1.0 / 362880,
                                      1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600};
  const Wu bits = reinterpret_cast<Wu>(n + kShifter) - 0x4338000000000000u + 1023u;
  return {r + r * r * polynomial(r, kTerms), reinterpret_cast<Wd>(bits << 52)};
}
inline constexpr double kLn2 = 0x1.62e42fefa39efp-1, kLog2E64 = 0x1.71547652b82fep+0,
                        kLog10E = 0x1.bcb7b1526e50ep-2, kHalfPi = 0x1.921fb54442d18p+0;
TEGULA_VEC_LONG WideExp exp_parts(Wd x) {
  x = select(x < -300.0, wide(-300), select(x > 300.0, wide(300), x));
  const Wd n = nearest(x * kLog2E64);
  return exp_parts(n, (x - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33);
}
TEGULA_VEC_LONG Wd exp(Wd x) {
  const WideExp e = exp_parts(x);
  return e.scale + e.scale * e.p;
}
TEGULA_VEC_LONG Wd expm1(Wd x) {
  const WideExp e = exp_parts(x);
  const Wd y = e.scale * e.p + (e.scale - 1);
  return select(x == 0, x, y);  // keeps -0
}
TEGULA_VEC_LONG Wd exp2(Wd x) {
  x = select(x < -300.0, wide(-300), select(x > 300.0, wide(300), x));
  const Wd n = nearest(x);
  const WideExp e = exp_parts(n, (x - n) * kLn2);
  return e.scale + e.scale * e.p;
}

// x = 2^e·m with m in [√½, √2), for normal x > 0, and log m.
struct WideLog {
  Wd e, log_m;
};
TEGULA_VEC_LONG WideLog log_parts(Wd x) {
  static constexpr double kTerms[] = {1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,
                                      1.0 / 11, 1.0 / 13, 1.0 / 15, 1.0 / 17};
  const Wu bits = reinterpret_cast<Wu>(x);
  const Wu e = (bits + (0x3ff0000000000000u - 0x3fe6a09e667f3bcdu)) >> 52;  // + 1023
  const Wd f = reinterpret_cast<Wd>(bits - ((e - 1023u) << 52)) - 1;
  const Wd s = f / (f + 2), z = s * s;
  const Wd exponent = reinterpret_cast<Wd>(e + 0x4338000000000000u) - (kShifter + 1023);
  return {exponent, 2 * s + 2 * s * z * polynomial(z, kTerms)};
}
// The logarithm y of x, or its limit where x is 0, negative or not finite.
TEGULA_VEC_LONG Wd log_limits(Wd x, Wd y) {
  const Wd edge = select(x == 0, wide(-kWideInf),
                         select(x == kWideInf, wide(kWideInf), wide(__builtin_nan(""))));
  return select((x > 0) & (x < kWideInf), y, edge);
}
TEGULA_VEC_LONG Wd log2(Wd x) {
  const WideLog l = log_parts(x);
  return log_limits(x, l.e + l.log_m * kLog2E64);
}
TEGULA_VEC_LONG Wd log10(Wd x) {
  const WideLog l = log_parts(x);
  return log_limits(x, (l.e * kLn2 + l.log_m) * kLog10E);
}
TEGULA_VEC_LONG Wd log1p(Wd x) {
  const Wd u = x + 1;
  // The part that rounding took from u: nothing where x is larger than 1 that would matter.
  const Wd lost = select(abs(x) < 1, x - (u - 1), wide(0));
  const WideLog l = log_parts(u);
  const Wd y = log_limits(u, l.e * kLn2 + (l.log_m + lost / u));
  return select(x == 0, x, y);
}

TEGULA_VEC_LONG Wd sinh(Wd x) {
  const Wd t = expm1(abs(x));
  return copysign((t + t / (t + 1)) * 0.5, x);
}
TEGULA_VEC_LONG Wd cosh(Wd x) {
  const Wd e = exp(abs(x));
  return (e + 1 / e) * 0.5;
}
TEGULA_VEC_LONG Wd asinh(Wd x) {
  const Wd a = abs(x), a2 = a * a;
  const Wd y = log1p(a + a2 / (sqrt(a2 + 1) + 1));
  return copysign(select(a < kWideInf, y, a), x);
}
TEGULA_VEC_LONG Wd acosh(Wd x) {  // NaN below 1: of the square root's, or of the logarithm's
  const Wd t = x - 1, y = log1p(t + sqrt(t * (t + 2)));
  return select(t < 0, wide(__builtin_nan("")), y);
}
TEGULA_VEC_LONG Wd atanh(Wd x) {
  const Wd a = abs(x);
  return copysign(log1p(2 * a / (1 - a)) * 0.5, x);
}

// The angle of (x, y) with x, y >= 0, not both 0 nor both inf: in [0, π/2].
TEGULA_VEC_LONG Wd angle(Wd y, Wd x) {
  // Minimax of atan(√z)/√z up to tan²(π/8): 2^-53.
  static constexpr double kTerms[] = {0x1p+0,
                                      -0x1.55555555551dbp-2,
                                      0x1.9999999934100p-3,
                                      -0x1.2492490052926p-3,
                                      0x1.c71c647592357p-4,
                                      -0x1.745ba83b8a69bp-4,
                                      0x1.3afae6a2b3775p-4,
                                      -0x1.0ffafaf07177fp-4,
                                      0x1.d1f3b7028794bp-5,
                                      -0x1.64158043652edp-5,
                                      0x1.5a04364b4e9d9p-6};
  const Wi steep = y > x * 2.414213562373095, flat = y <= x * 0.41421356237309503;
  const Wd num = select(flat, y, select(steep, -x, y - x));
  const Wd den = select(flat, x, select(steep, y, y + x));
  const Wd base = select(flat, wide(0), select(steep, wide(kHalfPi), wide(kHalfPi / 2)));
  const Wd t = num / den;
  return base + t * polynomial(t * t, kTerms);
}
TEGULA_VEC_LONG Wd atan(Wd x) { return copysign(angle(abs(x), wide(1)), x); }
// NaN beyond [-1, 1], as the root's.
TEGULA_VEC_LONG Wd asin(Wd x) { return copysign(angle(abs(x), sqrt((1 - x) * (1 + x))), x); }
TEGULA_VEC_LONG Wd acos(Wd x) {
  const Wd half = angle(sqrt(1 - x), sqrt(1 + x));
  return half + half;
}
TEGULA_VEC_LONG Wd atan2(Wd y, Wd x) {
  Wd a = abs(x), b = abs(y);
  const Wi both_inf = (a == kWideInf) & (b == kWideInf), both_zero = (a == 0) & (b == 0);
  a = select(both_inf | both_zero, wide(1), a);
  b = select(both_inf, wide(1), select(both_zero, wide(0), b));
  const Wd t = angle(b, a);
  return copysign(select(is_negative(x), 2 * kHalfPi - t, t), y);
}

// sin r / cos r, or -cos r / sin r, for r = x - n·π/2 with n up to 2^20; beyond, the C library.
TEGULA_VEC_LONG Wd tan(Wd x) {
  static constexpr double kSin[] = {-1.0 / 6,           1.0 / 120,       -1.0 / 5040,
                                    1.0 / 362880,       -1.0 / 39916800, 1.0 / 6227020800.0,
                                    -1.0 / 1307674368e3};
  static constexpr double kCos[] = {-1.0 / 2,           1.0 / 24,           -1.0 / 720,
                                    1.0 / 40320,        -1.0 / 3628800,     1.0 / 479001600,
                                    -1.0 / 87178291200, 1.0 / 20922789888e3};
  const Wd n = nearest(x * (1 / kHalfPi));
  // π/2 in three parts, of 33 bits and of 33 bits: their products with n are exact.
  const Wd r = ((x - n * 0x1.921fb544p+0) - n * 0x1.0b4611a6p-34) - n * 0x1.3198a2e037073p-69;
  const Wd z = r * r;
  const Wd s = r + r * z * polynomial(z, kSin), c = 1 + z * polynomial(z, kCos);
  const Wi odd = (reinterpret_cast<Wi>(n + kShifter) & 1) != 0;
  Wd y = select(odd, -c, s) / select(odd, s, c);
  const Wi far = ~(abs(x) < 1e6);
  if (any(far))
    for (int i = 0; i < kWide; ++i)
      if (far[i]) y[i] = __builtin_tan(x[i]);
  return select(x == 0, x, y);
}

// e^(-x²)·t·g(t), t = 4 / (4 + |x|): g is a fit in t - 19/30, of 2^-43.
TEGULA_VEC_LONG Wd erfc(Wd x) {
  static constexpr double kTerms[] = {
      0x1.6c7028f554abbp-2, 0x1.88d48e1847c06p-1,  0x1.62fbd3f03a791p+0,  0x1.0d35d98d5ea95p+1,
      0x1.53f9844d4e5fcp+1, 0x1.5e4bf2d33c9ebp+1,  0x1.19dead4aa3233p+1,  0x1.3de7cd42e59d4p+0,
      0x1.3add3daf62fffp-2, -0x1.996b66e0b4ab4p-3, -0x1.c957f79298a51p-3, -0x1.11edb91125968p-5,
      0x1.31024f56122a5p-4, 0x1.35a5768554960p-5,  -0x1.39240f85ae11ap-6, -0x1.151e3410251d5p-6};
  Wd a = abs(x);
  a = select(a > 11, wide(11), a);  // 0, long before
  const Wd t = 4 / (a + 4);
  const Wd y = t * polynomial(t - 0x1.4444444444444p-1, kTerms) * exp(-a * a);
  return select(is_negative(x), 2 - y, y);
}

TEGULA_VEC_LONG Wd hypot(Wd a, Wd b) {
  const Wd x = abs(a), y = abs(b);
  return select((x == kWideInf) | (y == kWideInf), wide(kWideInf), sqrt(x * x + y * y));
}

// Exact. A quotient below 2^29 of two f32 is no integer unless it is exact, so that a -
// trunc(a/b)·b has no error at all; what is beyond, or has no remainder, the C library knows.
TEGULA_VEC_LONG Wd fmod(Wd a, Wd b) {
  const Wd q = a / b;
  Wd r = copysign(a - trunc(q) * b, a);
  const Wi far = ~((abs(q) < 0x1p29) & (abs(b) < kWideInf));
  if (any(far))
    for (int i = 0; i < kWide; ++i)
      if (far[i]) r[i] = __builtin_fmod(a[i], b[i]);
  return r;
}
// The divisor's sign, also of 0.
TEGULA_VEC_LONG Wd remainder(Wd a, Wd b) {
  const Wd r = fmod(a, b);
  const Wd moved = select(is_negative(r) ^ is_negative(b), r + b, r);
  return select(r == 0, copysign(r, b), moved);
}
// ⌊a/b⌋ as Python's //: of inf NaN, as its remainder is; by inf -1 or 0; by 0 the quotient.
TEGULA_VEC_LONG Wd floor_divide(Wd a, Wd b) {
  const Wd q = a / b;
  const Wi differ = is_negative(a) ^ is_negative(b);
  const Wd by_inf = select((a != 0) & differ, wide(-1), q);
  Wd y = select(abs(b) == kWideInf, by_inf, floor(q));
  y = select((abs(a) == kWideInf) & (b != 0), wide(__builtin_nan("")), y);
  return select((b == 0) | (b != b) | (a != a), q, y);
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
