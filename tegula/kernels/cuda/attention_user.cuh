// A user's own score and mask, given as expressions (TEGULA_SCORE_FN, TEGULA_MASK_FN; see
// attention_score.cuh), and the dual numbers that differentiate the score.
//
// `score` is a float in the forward and a Dual, value and slope, in the backward: the expression is
// written once. It may use + - * /, comparisons, ?: and exp, log, sqrt, tanh, sin, cos, abs, min,
// max; constants with an f (0.5f), or the arithmetic is done in f64.
#pragma once

#include "tegula/kernels/cuda/ptx/types.cuh"

namespace tegula::cuda {

struct Dual {
  float value, slope;
  __device__ Dual(float value, float slope = 0.f) : value(value), slope(slope) {}
};

__device__ inline Dual operator-(Dual a) { return {-a.value, -a.slope}; }
__device__ inline Dual operator+(Dual a, Dual b) { return {a.value + b.value, a.slope + b.slope}; }
__device__ inline Dual operator-(Dual a, Dual b) { return {a.value - b.value, a.slope - b.slope}; }
__device__ inline Dual operator*(Dual a, Dual b) {
  return {a.value * b.value, a.slope * b.value + a.value * b.slope};
}
__device__ inline Dual operator/(Dual a, Dual b) {
  const float q = a.value / b.value;
  return {q, (a.slope - q * b.slope) / b.value};
}
__device__ inline bool operator<(Dual a, Dual b) { return a.value < b.value; }
__device__ inline bool operator>(Dual a, Dual b) { return a.value > b.value; }
__device__ inline bool operator<=(Dual a, Dual b) { return a.value <= b.value; }
__device__ inline bool operator>=(Dual a, Dual b) { return a.value >= b.value; }

// tanh by one exp2 and one division, and where that would cancel by its series: relative error 5e-7
// (tanh.approx has 5e-4, and a softcap's scores need better).
__device__ inline float tanh(float x) {
  const float far = 1.f - __fdividef(2.f, 1.f + exp2_approx(x * 2.88539008f));
  const float y = x * x;
  float near = __fmaf_rn(y, -17.f / 315.f, 2.f / 15.f);
  near = __fmaf_rn(y, near, -1.f / 3.f);
  near = __fmaf_rn(x * y, near, x);
  return y < 0.0625f ? near : far;
}
__device__ inline float exp(float x) { return exp2_approx(x * 1.44269504f); }
__device__ inline float log(float x) { return logf(x); }
__device__ inline float sqrt(float x) { return sqrtf(x); }
__device__ inline float sin(float x) { return sinf(x); }
__device__ inline float cos(float x) { return cosf(x); }
__device__ inline float abs(float x) { return fabsf(x); }
__device__ inline int abs(int x) { return x < 0 ? -x : x; }
__device__ inline float min(float a, float b) { return fminf(a, b); }
__device__ inline float max(float a, float b) { return fmaxf(a, b); }
__device__ inline int min(int a, int b) { return a < b ? a : b; }
__device__ inline int max(int a, int b) { return a > b ? a : b; }

__device__ inline Dual tanh(Dual x) {
  const float t = tanh(x.value);
  return {t, x.slope * (1.f - t * t)};
}
__device__ inline Dual exp(Dual x) {
  const float e = exp(x.value);
  return {e, x.slope * e};
}
__device__ inline Dual log(Dual x) { return {logf(x.value), x.slope / x.value}; }
__device__ inline Dual sqrt(Dual x) {
  const float r = sqrtf(x.value);
  return {r, 0.5f * x.slope / r};
}
__device__ inline Dual sin(Dual x) { return {sinf(x.value), x.slope * cosf(x.value)}; }
__device__ inline Dual cos(Dual x) { return {cosf(x.value), -x.slope * sinf(x.value)}; }
__device__ inline Dual abs(Dual x) { return x.value < 0.f ? -x : x; }
__device__ inline Dual min(Dual a, Dual b) { return b < a ? b : a; }
__device__ inline Dual max(Dual a, Dual b) { return b > a ? b : a; }

// x as the variable that slopes are by.
template <class T>
__device__ T seeded(float x);
template <>
__device__ inline float seeded<float>(float x) {
  return x;
}
template <>
__device__ inline Dual seeded<Dual>(float x) {
  return {x, 1.f};
}

// b, h: batch entry and query head; i, j: query and key, within their sequence of sq and sk.
#ifdef TEGULA_SCORE_FN
constexpr bool kHasUserScore = true;
template <class T>
__device__ inline T user_score(T score, int b, int h, int i, int j, int sq, int sk) {
  return T(TEGULA_SCORE_FN);
}
#else
constexpr bool kHasUserScore = false;
template <class T>
__device__ inline T user_score(T score, int, int, int, int, int, int) {
  return score;
}
#endif

#ifdef TEGULA_MASK_FN
constexpr bool kHasUserMask = true;
__device__ inline bool user_mask(int b, int h, int i, int j, int sq, int sk) {
  return TEGULA_MASK_FN;
}
#else
constexpr bool kHasUserMask = false;
__device__ inline bool user_mask(int, int, int, int, int, int) { return true; }
#endif

}  // namespace tegula::cuda
