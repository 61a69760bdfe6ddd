// The elementary functions of f32, with the bits of the CPU's: the polynomials, the order and the
// fused multiply-adds of kernels/cpu/isa/vecmath.h, whose comment has their errors. A multiply-add
// is fused where __fmaf_rn stands and nowhere else (--fmad=false).
#pragma once

#include "tegula/kernels/cuda/tile_types.cuh"

namespace tegula::cuda::tile::f32 {

__device__ inline float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ inline float fnma(float a, float b, float c) { return __fmaf_rn(-a, b, c); }  // c - a·b
__device__ inline float max(float a, float b) { return a > b ? a : b; }  // b where either is NaN
__device__ inline float min(float a, float b) { return a < b ? a : b; }
// Works on bits. Where the compiler makes `neg.ftz` or `abs.ftz` of them, what is computed with the
// result would be flushed anyway.
__device__ inline float negated(float a) { return as_float(bits(a) ^ 0x80000000u); }
__device__ inline float abs(float a) { return as_float(bits(a) & 0x7fffffffu); }
__device__ inline float copysign(float a, float s) {
  return as_float((bits(a) & 0x7fffffffu) | (bits(s) & 0x80000000u));
}

// Added to a number below 2^22, rounds it to a whole one, which the sum's last bits are, and saves
// the conversions, slow ones.
constexpr float kRounds = 0x1.8p23f;

// 1 / b rounded once, for b in [1, 2^127): 0 beyond 2^126, where it is denormal. The approximation
// is off by 1 ulp at most, and one step of Newton's makes it exact, as in the compiler's division.
__device__ inline float reciprocal(float b) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(b));
  return fma(y, fnma(b, y, 1.0f), y);
}

__device__ inline float exp(float x) {
  // Past these bounds the result is 0 or inf anyway. min and max pass on a NaN in their second.
  const float t = max(-104.0f, min(89.0f, x));
  const float s = t * 0x1.715476p+0f + (kRounds + 254.0f), n = s - (kRounds + 254.0f);  // log2(e)
  float r = fnma(n, 0x1.62e43p-1f, t);  // ln 2, in two parts
  r = fnma(n, -0x1.05c61p-29f, r);
  float q = 0x1.6a493p-10f;
  q = fma(q, r, 0x1.12399ep-7f);
  q = fma(q, r, 0x1.5558b4p-5f);
  q = fma(q, r, 0x1.555492p-3f);
  q = fma(q, r, 0x1.fffffcp-2f);
  const float e = fma(r * r, q, r) + 1.0f;
  // 2^n in two factors, because n reaches ±150: of s's last bits, which are n + 2·127.
  const u32 half = (bits(s) >> 1) << 23;
  return e * as_float(half) * as_float((bits(s) << 23) - half);
}

__device__ inline float log(float x) {
  const bool tiny = x < 0x1p-126f;
  const float s = tiny ? x * 0x1p23f : x;
  // s = 2^e·m with m in [√½, √2)
  const u32 u = bits(s) - 0x3f3504f3u;
  float e = static_cast<float>(static_cast<int>(u) >> 23);
  e = tiny ? e - 23.0f : e;
  const float m = as_float((u & 0x007fffffu) + 0x3f3504f3u);
  const float f = m - 1.0f;
  float p = 0x1.147262p-4f;
  p = fma(p, f, -0x1.de0114p-4f);
  p = fma(p, f, 0x1.e6bfecp-4f);
  p = fma(p, f, -0x1.fc28dap-4f);
  p = fma(p, f, 0x1.233ba4p-3f);
  p = fma(p, f, -0x1.555c44p-3f);
  p = fma(p, f, 0x1.99a476p-3f);
  p = fma(p, f, -0x1.000006p-2f);
  p = fma(p, f, 0x1.555548p-2f);
  const float f2 = f * f;
  float y = p * f * f2;
  y = fma(e, -0x1.05c61p-29f, y);
  y = fma(f2, -0.5f, y);
  const float r = fma(e, 0x1.62e43p-1f, f + y);
  const float inf = as_float(0x7f800000u);
  if (x > 0 && x < inf) return r;
  return x == 0 ? -inf : x == inf ? inf : as_float(0x7fc00000u);
}

__device__ inline float tanh(float x) {
  const float a = abs(x), t = x * x;
  float p = -0x1.750ce2p-8f;
  p = fma(p, t, 0x1.51f8cep-6f);
  p = fma(p, t, -0x1.b835a4p-5f);
  p = fma(p, t, 0x1.1106f6p-3f);
  p = fma(p, t, -0x1.555532p-2f);
  const float small = fma(p * t, a, a);
  const float big = 1.0f - 2.0f / (exp(a + a) + 1.0f);
  return copysign(a < 0.625f ? small : big, x);
}

// 1 / (1 + 2^n·2^r), n in s's last bits.
__device__ inline float sigmoid(float x) {
  const float t = min(88.0f, max(-88.0f, x));  // at -88 the result is denormal, so 0
  const float s = fma(t, -0x1.715476p+0f, kRounds + 127.0f), minus_n = (kRounds + 127.0f) - s;
  const float r = fma(t, -0x1.4ae0cp-26f, fma(t, -0x1.715476p+0f, minus_n));
  float q = 0x1.417872p-13f;
  q = fma(q, r, 0x1.5f0952p-10f);
  q = fma(q, r, 0x1.3b2dd4p-7f);
  q = fma(q, r, 0x1.c6af7ap-5f);
  q = fma(q, r, 0x1.ebfbdcp-3f);
  q = fma(q, r, 0x1.62e43p-1f);
  q = fma(q, r, 1.0f);
  return reciprocal(fma(q, as_float(bits(s) << 23), 1.0f));
}

__device__ inline float erf(float x) {
  const float a = abs(x), t = x * x;
  float p = 0x1.4771fep-14f;
  p = fma(p, t, -0x1.a3515ep-11f);
  p = fma(p, t, 0x1.53f224p-8f);
  p = fma(p, t, -0x1.b7f71ap-6f);
  p = fma(p, t, 0x1.ce2ce6p-4f);
  p = fma(p, t, -0x1.81273ep-2f);
  p = fma(p, t, 0x1.06eba8p-3f);
  const float small = fma(p, a, a);
  const float b = min(4.0f, a);  // erf(4) rounds to 1
  float q = -0x1.896afep-13f;
  q = fma(q, b, 0x1.83faccp-9f);
  q = fma(q, b, -0x1.66a30ep-6f);
  q = fma(q, b, 0x1.a6c7e2p-4f);
  q = fma(q, b, 0x1.46a98ep-1f);
  q = fma(q, b, 0x1.208e52p+0f);
  q = fma(q, b, 0x1.502332p-12f);  // -log(erfc(b))
  const float big = 1.0f - exp(negated(q));
  return copysign(a < 1.0f ? small : big, x);
}

// x - n·π/2 for |x| ≤ 2^22: the first product is exact, the second keeps its rounding error.
struct SinCosArg {
  float r;  // in [-π/4, π/4]
  u32 quadrant;
};
__device__ inline SinCosArg reduce_half_pi(float x) {
  const float y = x * 0x1.45f306p-1f;
  const float y_err = fma(x, 0x1.b9391p-26f, fma(x, 0x1.45f306p-1f, negated(y)));
  const float n0 = ::rintf(y);
  const float n = n0 + ::rintf((y - n0) + y_err);
  const float a = fnma(n, 0x1.921fb6p+0f, x);
  const float p2 = 0x1.777a5cp-25f;  // π/2 = 0x1.921fb6p+0 - p2 - 0x1.ee59dap-50
  const float p = n * p2;
  const float p_err = fma(n, p2, negated(p));
  const float s = a + p;
  const float bb = s - a;
  const float s_err = (a - (s - bb)) + (p - bb);
  return {s + fma(n, 0x1.ee59dap-50f, s_err + p_err), static_cast<u32>(static_cast<int>(n))};
}
__device__ inline float sin_quadrant(SinCosArg x) {
  const float r = x.r, t = r * r;
  float p = 0x1.7c3226p-19f;
  p = fma(p, t, -0x1.a0595ep-13f);
  p = fma(p, t, 0x1.111174p-7f);
  p = fma(p, t, -0x1.555556p-3f);
  const float s = fma(p * t, r, r);
  float q = -0x1.36147cp-22f;
  q = fma(q, t, 0x1.a071b6p-16f);
  q = fma(q, t, -0x1.6c175ep-10f);
  q = fma(q, t, 0x1.555556p-5f);
  const float c = fma(t * t, q, fma(t, -0.5f, 1.0f));
  const float v = (x.quadrant & 1) == 0 ? s : c;
  return as_float(bits(v) ^ ((x.quadrant & 2) << 30));
}
// Beyond 2^22 the CPU asks the C library, in f64.
__device__ inline float sin(float x) {
  if (x == 0) return x;  // -0 stays
  if (abs(x) > 0x1p22f) return to_f32(::sin(static_cast<double>(x)));
  return sin_quadrant(reduce_half_pi(x));
}
__device__ inline float cos(float x) {
  if (abs(x) > 0x1p22f) return to_f32(::cos(static_cast<double>(x)));
  SinCosArg a = reduce_half_pi(x);
  ++a.quadrant;
  return sin_quadrant(a);
}

__device__ inline float rsqrt(float x) { return 1.0f / ::sqrtf(x); }
__device__ inline float relu(float x) { return max(0.0f, x); }  // NaN stays
// x·sigmoid(x); -inf gives -0 like every very negative x
__device__ inline float silu(float x) { return max(-0x1.fffffep127f, x) * sigmoid(x); }
// x/2·(1 + tanh u) with u = √(2/π)·(x + 0.044715x³), as x · 1 / (1 + e^-2u).
__device__ inline float gelu(float x) {
  const float a = max(-10.03f, x), b = min(10.03f, a), b2 = b * b;
  const float w = fma(b2, -0x1.a5a7dp-4f, -0x1.26aec2p+1f);  // b·w = -2u·log2(e)
  const float s = fma(b, w, kRounds + 127.0f), minus_n = (kRounds + 127.0f) - s;
  const float r = fma(b, w, minus_n);
  float q = 0x1.5bda7ap-10f;
  q = fma(q, r, 0x1.3ce8bp-7f);
  q = fma(q, r, 0x1.c6b6d8p-5f);
  q = fma(q, r, 0x1.ebf9c2p-3f);
  q = fma(q, r, 0x1.62e42ap-1f);
  q = fma(q, r, 1.0f);
  return a * reciprocal(fma(q, as_float(bits(s) << 23), 1.0f));
}

}  // namespace tegula::cuda::tile::f32
