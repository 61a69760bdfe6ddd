// Arithmetic of CUDA C++: what rounds to nearest does so here; functions that the device computes
// to a few ulp are the host's.
#pragma once

#define EMULATED_OF_1(name)                                        \
  inline float name##f(float x) { return __builtin_##name##f(x); } \
  inline double name(double x) { return __builtin_##name(x); }     \
  inline float name(float x) { return __builtin_##name##f(x); }
#define EMULATED_OF_2(name)                                                    \
  inline float name##f(float x, float y) { return __builtin_##name##f(x, y); } \
  inline double name(double x, double y) { return __builtin_##name(x, y); }    \
  inline float name(float x, float y) { return __builtin_##name##f(x, y); }
EMULATED_OF_1(exp)
EMULATED_OF_1(exp2)
EMULATED_OF_1(expm1)
EMULATED_OF_1(log)
EMULATED_OF_1(log2)
EMULATED_OF_1(log10)
EMULATED_OF_1(log1p)
EMULATED_OF_1(sqrt)
EMULATED_OF_1(cbrt)
EMULATED_OF_1(sin)
EMULATED_OF_1(cos)
EMULATED_OF_1(tan)
EMULATED_OF_1(asin)
EMULATED_OF_1(acos)
EMULATED_OF_1(atan)
EMULATED_OF_1(sinh)
EMULATED_OF_1(cosh)
EMULATED_OF_1(tanh)
EMULATED_OF_1(asinh)
EMULATED_OF_1(acosh)
EMULATED_OF_1(atanh)
EMULATED_OF_1(erf)
EMULATED_OF_1(erfc)
EMULATED_OF_1(floor)
EMULATED_OF_1(ceil)
EMULATED_OF_1(trunc)
EMULATED_OF_1(round)
EMULATED_OF_1(rint)
EMULATED_OF_1(nearbyint)
EMULATED_OF_1(fabs)
EMULATED_OF_2(pow)
EMULATED_OF_2(fmod)
EMULATED_OF_2(atan2)
EMULATED_OF_2(fmax)
EMULATED_OF_2(fmin)
EMULATED_OF_2(copysign)
EMULATED_OF_2(hypot)
EMULATED_OF_2(remainder)
#undef EMULATED_OF_1
#undef EMULATED_OF_2
inline float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float rsqrtf(float x) { return 1.f / __builtin_sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
inline float exp10f(float x) { return __builtin_powf(10.f, x); }
inline float ldexpf(float x, int e) { return __builtin_ldexpf(x, e); }
inline double ldexp(double x, int e) { return __builtin_ldexp(x, e); }
inline void sincosf(float x, float* s, float* c) { *s = __builtin_sinf(x), *c = __builtin_cosf(x); }
inline bool isnan(double x) { return __builtin_isnan(x); }
inline bool isinf(double x) { return __builtin_isinf(x); }
inline bool isfinite(double x) { return __builtin_isfinite(x); }
inline bool isnan(float x) { return __builtin_isnan(x); }
inline bool isinf(float x) { return __builtin_isinf(x); }
inline bool isfinite(float x) { return __builtin_isfinite(x); }
inline bool signbit(float x) { return __builtin_signbit(x); }
inline int abs(int x) { return x < 0 ? -x : x; }
inline long long llabs(long long x) { return x < 0 ? -x : x; }
inline float abs(float x) { return __builtin_fabsf(x); }
inline double abs(double x) { return __builtin_fabs(x); }

// min and max, with the device's rules for mixed signs; of floats the number beside a NaN.
#define EMULATED_EXTREMES(type)                             \
  inline type min(type a, type b) { return b < a ? b : a; } \
  inline type max(type a, type b) { return a < b ? b : a; }
EMULATED_EXTREMES(int)
EMULATED_EXTREMES(unsigned)
EMULATED_EXTREMES(long)
EMULATED_EXTREMES(unsigned long)
EMULATED_EXTREMES(long long)
EMULATED_EXTREMES(unsigned long long)
#undef EMULATED_EXTREMES
#define EMULATED_MIXED(a_type, b_type, type)                                                      \
  inline type min(a_type a, b_type b) { return min(static_cast<type>(a), static_cast<type>(b)); } \
  inline type max(a_type a, b_type b) { return max(static_cast<type>(a), static_cast<type>(b)); } \
  inline type min(b_type a, a_type b) { return min(static_cast<type>(a), static_cast<type>(b)); } \
  inline type max(b_type a, a_type b) { return max(static_cast<type>(a), static_cast<type>(b)); }
EMULATED_MIXED(int, unsigned, unsigned)
EMULATED_MIXED(long, unsigned long, unsigned long)
EMULATED_MIXED(long long, unsigned long long, unsigned long long)
#undef EMULATED_MIXED
inline float min(float a, float b) { return __builtin_fminf(a, b); }
inline float max(float a, float b) { return __builtin_fmaxf(a, b); }
inline double min(double a, double b) { return __builtin_fmin(a, b); }
inline double max(double a, double b) { return __builtin_fmax(a, b); }

// One rounding each, never contracted.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float __frcp_rn(float x) { return 1.f / x; }
inline float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
inline float __frsqrt_rn(float x) { return float(1.0 / __builtin_sqrt(double(x))); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double x) { return __builtin_sqrt(x); }
inline double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }

// Functions of the special function unit: approximate there, the host's here.
inline float __expf(float x) { return __builtin_expf(x); }
inline float __exp10f(float x) { return exp10f(x); }
inline float __logf(float x) { return __builtin_logf(x); }
inline float __log2f(float x) { return __builtin_log2f(x); }
inline float __log10f(float x) { return __builtin_log10f(x); }
inline float __powf(float x, float y) { return __builtin_powf(x, y); }
inline float __sinf(float x) { return __builtin_sinf(x); }
inline float __cosf(float x) { return __builtin_cosf(x); }
inline float __tanf(float x) { return __builtin_tanf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __saturatef(float x) { return x >= 1.f ? 1.f : x > 0.f ? x : 0.f; }

// Bits.
inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
inline float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
inline int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
inline double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }
inline long long __double_as_longlong(double x) { return __builtin_bit_cast(long long, x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(unsigned(x)); }
inline int __clzll(long long x) {
  return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x));
}
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline unsigned __brev(unsigned x) {
  unsigned y = 0;
  for (int i = 0; i < 32; ++i) y |= (x >> i & 1) << (31 - i);
  return y;
}
// sum + Σ a_i b_i of four signed bytes each.
inline int __dp4a(int a, int b, int sum) {
  for (int i = 0; i < 32; i += 8)
    sum += static_cast<signed char>(a >> i) * static_cast<signed char>(b >> i);
  return sum;
}
// Byte i of the result is byte (selector >> 4 i) % 8 of y:x; with bit 3 its sign, repeated.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const unsigned long long both = static_cast<unsigned long long>(y) << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned s = selector >> (4 * i);
    const unsigned byte = unsigned(both >> (8 * (s & 7))) & 0xff;
    result |= ((s & 8) != 0 ? ((byte & 0x80) != 0 ? 0xffU : 0U) : byte) << (8 * i);
  }
  return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned n) {
  const unsigned long long both = static_cast<unsigned long long>(high) << 32 | low;
  return unsigned(both << (n & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned n) {
  const unsigned long long both = static_cast<unsigned long long>(high) << 32 | low;
  return unsigned(both >> (n & 31));
}
inline int __mulhi(int a, int b) { return int(static_cast<long long>(a) * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return unsigned(static_cast<unsigned long long>(a) * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}

// Whole numbers of floats: what does not fit becomes the nearest that does, NaN becomes 0.
namespace tegula::emulated {
template <class To, class From>
To to_whole(From x, To least, To most) {
  if (x != x) return 0;
  if (x <= static_cast<From>(least)) return least;
  if (x >= static_cast<From>(most)) return most;
  return static_cast<To>(x);
}
}  // namespace tegula::emulated
#define EMULATED_TO_WHOLE(suffix, rounded)                                              \
  inline int __float2int_##suffix(float x) {                                            \
    return ::tegula::emulated::to_whole<int>(rounded(x), -2147483647 - 1, 2147483647);  \
  }                                                                                     \
  inline unsigned __float2uint_##suffix(float x) {                                      \
    return ::tegula::emulated::to_whole<unsigned>(rounded(x), 0, 0xffffffff);           \
  }                                                                                     \
  inline long long __float2ll_##suffix(float x) {                                       \
    return ::tegula::emulated::to_whole<long long>(rounded(x), -0x7fffffffffffffff - 1, \
                                                   0x7fffffffffffffff);                 \
  }
EMULATED_TO_WHOLE(rn, __builtin_rintf)
EMULATED_TO_WHOLE(rz, __builtin_truncf)
EMULATED_TO_WHOLE(ru, __builtin_ceilf)
EMULATED_TO_WHOLE(rd, __builtin_floorf)
#undef EMULATED_TO_WHOLE
inline float __int2float_rn(int x) { return float(x); }
inline float __uint2float_rn(unsigned x) { return float(x); }
inline float __ll2float_rn(long long x) { return float(x); }
inline float __ull2float_rn(unsigned long long x) { return float(x); }
inline float __double2float_rn(double x) { return float(x); }
