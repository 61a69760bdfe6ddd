// Elementary functions over Vf, written once: every kernel that needs one calls it here, so that
// fused and separate nodes, and all instruction sets, agree to the bit.
//
// Errors, measured against double by tests/kernels/vecmath_test.cpp: exp 1 ulp, log, sin, cos,
// rsqrt and erf 1.6, tanh 2, sigmoid and silu 2.5, over all finite arguments whose result is
// normal. NaN in gives NaN out and limits are exact (exp(-inf) = 0, tanh(inf) = 1, ...).
// Polynomials are weighted minimax fits, rounded to f32 from the lowest term up. gelu is the tanh
// form, x/2·(1 + tanh u) with u = √(2/π)·(x + 0.044715x³), computed as x · (1 / (1 + e^-2u)), which
// is equal and does not cancel for negative x. e^-2u inherits three roundings of its argument, so
// the error grows with |u|: up to 6 + 3·|2u| half-ulps.
#pragma once

#include "tegula/kernels/cpu/isa/vec.h"

namespace tegula::kernel::TEGULA_ISA_NS {

// e^x for n vectors, a step of all at a time, so that a processor need not look far for work.
// Overflows to inf above 88.73, underflows gradually (or to 0 where denormals are flushed).
template <int n>
TEGULA_VEC_LONG void exp_all(Vf (&x)[n]) {
  Vf k[n], r[n], q[n];
#pragma GCC unroll unrolled(4)
  for (int i = 0; i < n; ++i) {
    // Past these bounds the result is 0 or inf anyway. min and max pass on a NaN in their second.
    const Vf t = max(set1(-104.0f), min(set1(89.0f), x[i]));
    k[i] = round(t * set1(0x1.715476p+0f));     // log2(e)
    r[i] = fnma(k[i], set1(0x1.62e43p-1f), t);  // ln 2, in two parts
    r[i] = fnma(k[i], set1(-0x1.05c61p-29f), r[i]);
    q[i] = set1(0x1.6a493p-10f);
  }
  constexpr float kTerms[] = {0x1.12399ep-7f, 0x1.5558b4p-5f, 0x1.555492p-3f, 0x1.fffffcp-2f};
#pragma GCC unroll unrolled(4)
  for (const float term : kTerms)
#pragma GCC unroll unrolled(4)
    for (int i = 0; i < n; ++i) q[i] = fma(q[i], r[i], set1(term));
#pragma GCC unroll unrolled(4)
  for (int i = 0; i < n; ++i) {
    const Vf e = fma(r[i] * r[i], q[i], r[i]) + set1(1.0f);
#if defined(TEGULA_ISA_AVX512)
    x[i] = times_exp2(e, k[i]);  // one instruction, and the same bits for every f32
#else
    // 2^k in two factors, because k reaches ±150.
    const Vi whole = to_int(k[i]);
    const Vi half = sar<1>(whole);
    const Vf s1 = as_float(shl<23>(half + set1i(127)));
    const Vf s2 = as_float(shl<23>(whole - half + set1i(127)));
    x[i] = e * s1 * s2;
#endif
  }
}
TEGULA_VEC Vf exp(Vf x) {
  Vf y[] = {x};
  exp_all(y);
  return y[0];
}
TEGULA_VEC Row16 exp(const Row16& x) {
  Row16 y = x;
  exp_all(y.v);
  return y;
}

inline constexpr float kLog2E = 0x1.715476p+0f;

// 2^x for n weights of a softmax: 2 ulp, 0 below -127 (so for -inf), inf from 128 on. Between
// -127 and -126 it is a denormal or 0, which multiply-adds of a pool's threads take for 0 alike.
template <int n>
TEGULA_VEC_LONG void exp2_weights(Vf (&x)[n]) {
  // Minimax in the relative error on [-1/2, 1/2]; 1 at 0, so that powers of 2 are exact.
  constexpr float kTerms[] = {0x1.3ce8bp-7f, 0x1.c6b6d8p-5f, 0x1.ebf9c2p-3f, 0x1.62e42ap-1f, 1.0f};
  Vf r[n], q[n];
#pragma GCC unroll unrolled(4)
  for (int i = 0; i < n; ++i) r[i] = split_exponent(x[i]), q[i] = set1(0x1.5bda7ap-10f);
#pragma GCC unroll unrolled(5)
  for (const float term : kTerms)
#pragma GCC unroll unrolled(4)
    for (int i = 0; i < n; ++i) q[i] = fma(q[i], r[i], set1(term));
#pragma GCC unroll unrolled(4)
  for (int i = 0; i < n; ++i) x[i] = times_exp2(q[i], x[i]);
}
TEGULA_VEC Vf exp2_weight(Vf x) {
  Vf y[] = {x};
  exp2_weights(y);
  return y[0];
}

template <int n>
TEGULA_VEC_LONG void exp2_weights(Row16 (&x)[n]) {
  constexpr int k = Row16::kRegs;
  Vf y[n * k];
#pragma GCC unroll unrolled(8)
  for (int i = 0; i < n * k; ++i) y[i] = x[i / k].v[i % k];
  exp2_weights(y);
#pragma GCC unroll unrolled(8)
  for (int i = 0; i < n * k; ++i) x[i / k].v[i % k] = y[i];
}

TEGULA_VEC Row16 exp2_weight(const Row16& x) {
  return map16([&](int i) { return exp2_weight(x.v[i]); });
}

// Natural logarithm; log(0) = -inf, log of a negative number is NaN.
TEGULA_VEC_LONG Vf log(Vf x) {
  const Vm tiny = lt(x, set1(0x1p-126f));
  const Vf s = select(tiny, x * set1(0x1p23f), x);
  // s = 2^e·m with m in [√½, √2)
  const Vi u = bits(s) - set1i(0x3f3504f3);
  Vf e = to_float(sar<23>(u));
  e = select(tiny, e - set1(23.0f), e);
  const Vf m = as_float((u & set1i(0x007fffff)) + set1i(0x3f3504f3));
  const Vf f = m - set1(1.0f);
  Vf p = set1(0x1.147262p-4f);
  p = fma(p, f, set1(-0x1.de0114p-4f));
  p = fma(p, f, set1(0x1.e6bfecp-4f));
  p = fma(p, f, set1(-0x1.fc28dap-4f));
  p = fma(p, f, set1(0x1.233ba4p-3f));
  p = fma(p, f, set1(-0x1.555c44p-3f));
  p = fma(p, f, set1(0x1.99a476p-3f));
  p = fma(p, f, set1(-0x1.000006p-2f));
  p = fma(p, f, set1(0x1.555548p-2f));
  const Vf f2 = f * f;
  Vf y = p * f * f2;
  y = fma(e, set1(-0x1.05c61p-29f), y);
  y = fma(f2, set1(-0.5f), y);
  const Vf r = fma(e, set1(0x1.62e43p-1f), f + y);
  const Vf inf = set1(__builtin_inff());
  const Vf special = select(eq(x, zero()), -inf, select(eq(x, inf), inf, set1(__builtin_nanf(""))));
  return select(gt(x, zero()) & lt(x, inf), r, special);
}

TEGULA_VEC_LONG Vf tanh(Vf x) {
  const Vf a = abs(x);
  const Vf t = x * x;
  Vf p = set1(-0x1.750ce2p-8f);
  p = fma(p, t, set1(0x1.51f8cep-6f));
  p = fma(p, t, set1(-0x1.b835a4p-5f));
  p = fma(p, t, set1(0x1.1106f6p-3f));
  p = fma(p, t, set1(-0x1.555532p-2f));
  const Vf small = fma(p * t, a, a);
  const Vf big = set1(1.0f) - set1(2.0f) / (exp(a + a) + set1(1.0f));
  return copysign(select(lt(a, set1(0.625f)), small, big), x);
}

// Added to a number below 2^22, rounds it to a whole one n and leaves n + 127 in the sum's last
// bits: shifted to the exponent's place, 2^n, which is inf for n = 128.
inline constexpr float kRounds = 0x1.8p23f + 127.0f;

// 1 / (1 + e^-x), as 1 / (1 + 2^n·2^r)
TEGULA_VEC_LONG Vf sigmoid(Vf x) {
  const Vf t = min(set1(88.0f), max(set1(-88.5f), x));  // NaN passes
  const Vf minus_log2e = set1(-0x1.715476p+0f);
  const Vf s = fma(t, minus_log2e, set1(kRounds)), minus_n = set1(kRounds) - s;
  const Vf r = fma(t, set1(-0x1.4ae0cp-26f), fma(t, minus_log2e, minus_n));
  Vf q = set1(0x1.417872p-13f);
  q = fma(q, r, set1(0x1.5f0952p-10f));
  q = fma(q, r, set1(0x1.3b2dd4p-7f));
  q = fma(q, r, set1(0x1.c6af7ap-5f));
  q = fma(q, r, set1(0x1.ebfbdcp-3f));
  q = fma(q, r, set1(0x1.62e43p-1f));
  q = fma(q, r, set1(1.0f));
  return set1(1.0f) / fma(q, as_float(shl<23>(bits(s))), set1(1.0f));
}

TEGULA_VEC_LONG Vf erf(Vf x) {
  const Vf a = abs(x);
  const Vf t = x * x;
  Vf p = set1(0x1.4771fep-14f);
  p = fma(p, t, set1(-0x1.a3515ep-11f));
  p = fma(p, t, set1(0x1.53f224p-8f));
  p = fma(p, t, set1(-0x1.b7f71ap-6f));
  p = fma(p, t, set1(0x1.ce2ce6p-4f));
  p = fma(p, t, set1(-0x1.81273ep-2f));
  p = fma(p, t, set1(0x1.06eba8p-3f));
  const Vf small = fma(p, a, a);
  const Vf b = min(set1(4.0f), a);  // erf(4) rounds to 1
  Vf q = set1(-0x1.896afep-13f);
  q = fma(q, b, set1(0x1.83faccp-9f));
  q = fma(q, b, set1(-0x1.66a30ep-6f));
  q = fma(q, b, set1(0x1.a6c7e2p-4f));
  q = fma(q, b, set1(0x1.46a98ep-1f));
  q = fma(q, b, set1(0x1.208e52p+0f));
  q = fma(q, b, set1(0x1.502332p-12f));  // -log(erfc(b))
  const Vf big = set1(1.0f) - exp(-q);
  return copysign(select(lt(a, set1(1.0f)), small, big), x);
}

// x - n·π/2 for |x| ≤ 2^22: the first product is exact, the second keeps its rounding error.
struct SinCosArg {
  Vf r;         // in [-π/4, π/4]
  Vi quadrant;  // n
};
TEGULA_VEC_LONG SinCosArg reduce_half_pi(Vf x) {
  // The quotient in two parts, or far out n would be off by one.
  const Vf two_over_pi = set1(0x1.45f306p-1f);
  const Vf y = x * two_over_pi;
  const Vf y_err = fma(x, set1(0x1.b9391p-26f), fma(x, two_over_pi, -y));
  const Vf n0 = round(y);
  const Vf n = n0 + round((y - n0) + y_err);
  const Vf a = fnma(n, set1(0x1.921fb6p+0f), x);
  const Vf p2 = set1(0x1.777a5cp-25f);  // π/2 = 0x1.921fb6p+0 - p2 - 0x1.ee59dap-50
  const Vf p = n * p2;
  const Vf p_err = fma(n, p2, -p);
  const Vf s = a + p;
  const Vf bb = s - a;
  const Vf s_err = (a - (s - bb)) + (p - bb);
  return {s + fma(n, set1(0x1.ee59dap-50f), s_err + p_err), to_int(n)};
}
// Beyond 2^22 (no position or phase of ours gets there) each lane asks the C library.
template <class F>
TEGULA_VEC Vf map_lanes(Vf x, F&& f) {
  float t[kLanes];
  store(t, x);
  for (int i = 0; i < kLanes; ++i) t[i] = f(t[i]);
  return load(t);
}
TEGULA_VEC_LONG Vf sin_quadrant(Vf r, Vi quadrant) {
  const Vf t = r * r;
  Vf p = set1(0x1.7c3226p-19f);
  p = fma(p, t, set1(-0x1.a0595ep-13f));
  p = fma(p, t, set1(0x1.111174p-7f));
  p = fma(p, t, set1(-0x1.555556p-3f));
  const Vf s = fma(p * t, r, r);
  Vf q = set1(-0x1.36147cp-22f);
  q = fma(q, t, set1(0x1.a071b6p-16f));
  q = fma(q, t, set1(-0x1.6c175ep-10f));
  q = fma(q, t, set1(0x1.555556p-5f));
  const Vf c = fma(t * t, q, fma(t, set1(-0.5f), set1(1.0f)));
  const Vf v = select(eqi(quadrant & set1i(1), set1i(0)), s, c);
  return as_float(bits(v) ^ shl<30>(quadrant & set1i(2)));
}
TEGULA_VEC_LONG Vf sin(Vf x) {
  const SinCosArg a = reduce_half_pi(x);
  Vf y = sin_quadrant(a.r, a.quadrant);
  const Vm far = gt(abs(x), set1(0x1p22f));
  if (any(far))
    y = select(far, map_lanes(x, [](float v) { return static_cast<float>(__builtin_sin(v)); }), y);
  return y;
}
TEGULA_VEC_LONG Vf cos(Vf x) {
  const SinCosArg a = reduce_half_pi(x);
  Vf y = sin_quadrant(a.r, a.quadrant + set1i(1));
  const Vm far = gt(abs(x), set1(0x1p22f));
  if (any(far))
    y = select(far, map_lanes(x, [](float v) { return static_cast<float>(__builtin_cos(v)); }), y);
  return y;
}

// 1 / √x, each step rounded once (no approximate instruction: those differ between machines)
TEGULA_VEC Vf rsqrt(Vf x) { return set1(1.0f) / sqrt(x); }

// max(0, x); NaN stays
TEGULA_VEC Vf relu(Vf x) { return max(zero(), x); }

// x·sigmoid(x); -inf gives -0 like every very negative x
TEGULA_VEC_LONG Vf silu(Vf x) { return max(set1(-0x1.fffffep127f), x) * sigmoid(x); }

TEGULA_VEC_LONG Vf gelu(Vf x) {
  // Past these bounds the result is -0 or x anyway.
  const Vf a = max(set1(-10.05f), x), b = min(set1(10.03f), a);
  const Vf w = fma(b * b, set1(-0x1.a5a7dp-4f), set1(-0x1.26aec2p+1f));  // b·w = -2u·log2(e)
  const Vf s = fma(b, w, set1(kRounds)), minus_n = set1(kRounds) - s;
  const Vf r = fma(b, w, minus_n);
  Vf q = set1(0x1.5bda7ap-10f);  // 2^r, as in exp2_weights
  q = fma(q, r, set1(0x1.3ce8bp-7f));
  q = fma(q, r, set1(0x1.c6b6d8p-5f));
  q = fma(q, r, set1(0x1.ebf9c2p-3f));
  q = fma(q, r, set1(0x1.62e42ap-1f));
  q = fma(q, r, set1(1.0f));
  return a * (set1(1.0f) / fma(q, as_float(shl<23>(bits(s))), set1(1.0f)));
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
