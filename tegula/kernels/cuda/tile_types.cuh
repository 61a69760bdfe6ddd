// The dtypes of tile programs on the device: how a value of each is stored, computed with, and
// rounded. The text that tile_text.h writes names them; tile/program.h says what they mean.
//
// A dtype T has T::Value (float, double or long long: its class), T::Storage (an element of
// memory), widen and narrow between them, and round, which takes what was computed to the dtype's
// nearest value. Ties go to even, integers wrap. What lies in memory as a denormal number is read
// as it is; arithmetic flushes it: f32's by the compiler's flag --ftz=true, f64's here, by
// flushed().
#pragma once

#include "tegula/kernels/cuda/count.cuh"

namespace tegula::cuda::tile {

using u32 = unsigned;
using u64 = unsigned long long;
using i64 = long long;

__device__ inline u32 bits(float a) { return __float_as_uint(a); }
__device__ inline float as_float(u32 a) { return __uint_as_float(a); }
__device__ inline u64 bits(double a) { return static_cast<u64>(__double_as_longlong(a)); }
__device__ inline double as_double(u64 a) { return __longlong_as_double(static_cast<i64>(a)); }

// A number that a flag of the compiler does not reach: 0 with its sign where it is denormal.
__device__ inline double flushed(double a) {
  return (bits(a) & 0x7ff0000000000000u) == 0 ? as_double(bits(a) & 0x8000000000000000u) : a;
}
__device__ inline float flushed(float a) {
  return (bits(a) & 0x7f800000u) == 0 ? as_float(bits(a) & 0x80000000u) : a;
}
__device__ inline float to_f32(double a) { return flushed(static_cast<float>(a)); }

struct F32 {
  using Value = float;
  using Storage = float;
  __device__ static float widen(float a) { return a; }
  __device__ static float narrow(float a) { return a; }
  __device__ static float round(float a) { return a; }
};

struct BF16 {
  using Value = float;
  using Storage = unsigned short;
  __device__ static float widen(unsigned short a) { return as_float(static_cast<u32>(a) << 16); }
  __device__ static unsigned short narrow(float a) {  // of a value that is rounded
    return static_cast<unsigned short>(bits(a) >> 16);
  }
  __device__ static float round(float a) {
    unsigned short near;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(near) : "f"(a));
    return widen(near);
  }
};

struct F16 {
  using Value = float;
  using Storage = unsigned short;
  __device__ static float widen(unsigned short a) {
    const u32 sign = (a & 0x8000u) << 16, e = (a >> 10) & 0x1f, m = a & 0x3ff;
    if (e == 0x1f) return as_float(sign | 0x7f800000u | (m << 13));
    if (e == 0) return as_float(sign | bits(static_cast<float>(m) * 0x1p-24f));
    return as_float(sign | ((e + 112) << 23) | (m << 13));
  }
  __device__ static unsigned short narrow(float x) {
    const u32 u = bits(x), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
    u32 r = (a + 0xfffu + ((a >> 13) & 1) - 0x38000000u) >> 13;
    // Below 2^-14 the sum's own rounding is at the right bit.
    if (a < 0x38800000u) r = bits(as_float(a) + 0.5f) - 0x3f000000u;
    if (a >= 0x477ff000u) r = 0x7c00u;  // from 65520 on
    if (a > 0x7f800000u) r = 0x7e00u;
    return static_cast<unsigned short>(sign | r);
  }
  __device__ static float round(float a) { return widen(narrow(a)); }
};

struct E4M3 {  // no infinities: what is above 448 becomes 448
  using Value = float;
  using Storage = unsigned char;
  __device__ static float widen(unsigned char a) {
    const u32 sign = (a & 0x80u) << 24, e = (a >> 3) & 0xf, m = a & 7;
    if ((a & 0x7f) == 0x7f) return as_float(sign | 0x7fc00000u);
    if (e == 0) return as_float(sign | bits(static_cast<float>(m) * 0x1p-9f));
    return as_float(sign | ((e + 120) << 23) | (m << 20));
  }
  __device__ static unsigned char narrow(float x) {
    const u32 u = bits(x), sign = (u >> 24) & 0x80u, a = u & 0x7fffffffu;
    u32 r = (a + 0x7ffffu + ((a >> 20) & 1) - 0x3c000000u) >> 20;
    // Below 2^-6 the sum's own rounding is at the right bit.
    if (a < 0x3c800000u) r = bits(as_float(a) + 0x1p14f) - 0x46800000u;
    if (a >= 0x43e00000u) r = 0x7eu;
    if (a > 0x7f800000u) r = 0x7fu;
    return static_cast<unsigned char>(sign | r);
  }
  __device__ static float round(float a) { return widen(narrow(a)); }
};

struct Bool {
  using Value = float;
  using Storage = unsigned char;
  static constexpr int kBits = 8;
  static constexpr i64 kLeast = 0, kGreatest = 1;
  __device__ static float widen(unsigned char a) { return static_cast<float>(a); }
  __device__ static unsigned char narrow(float a) { return static_cast<unsigned char>(a); }
  __device__ static float round(float a) { return a != 0 ? 1.0f : 0.0f; }
  __device__ static i64 wrap(i64 v) { return v != 0; }
};

struct F64 {
  using Value = double;
  using Storage = double;
  __device__ static double widen(double a) { return a; }
  __device__ static double narrow(double a) { return a; }
  __device__ static double round(double a) { return a; }
};

template <class S, int kWidth, bool kSigned>
struct Int {
  using Value = i64;
  using Storage = S;
  static constexpr int kBits = kWidth;
  static constexpr i64 kGreatest = static_cast<i64>(~u64{0} >> (64 - kWidth + (kSigned ? 1 : 0)));
  static constexpr i64 kLeast = kSigned ? -kGreatest - 1 : 0;
  __device__ static i64 widen(S a) { return static_cast<i64>(a); }
  __device__ static S narrow(i64 a) { return static_cast<S>(a); }
  __device__ static i64 wrap(i64 v) { return static_cast<i64>(static_cast<S>(v)); }
  __device__ static i64 round(i64 v) { return wrap(v); }
};
using I64 = Int<long long, 64, true>;
using I32 = Int<int, 32, true>;
using I8 = Int<signed char, 8, true>;
using U8 = Int<unsigned char, 8, false>;

// The functions that base/integer.h and base/integer_math.h define, for a dtype that is known here.
namespace integer {

template <class T>
__device__ i64 divide(i64 a, i64 b) {
  if (b == 0) return a > 0 ? T::kGreatest : a < 0 ? T::kLeast : 0;
  return b == -1 ? T::wrap(static_cast<i64>(-static_cast<u64>(a))) : a / b;
}
__device__ inline i64 fmod(i64 a, i64 b) { return b == 0 ? a : b == -1 ? 0 : a % b; }
__device__ inline i64 remainder(i64 a, i64 b) {
  const i64 r = fmod(a, b);
  return r != 0 && b != 0 && (r < 0) != (b < 0) ? r + b : r;
}
template <class T>
__device__ i64 floor_divide(i64 a, i64 b) {
  const i64 q = divide<T>(a, b);
  return b == 0 || b == -1 ? q : q - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}
template <class T>
__device__ i64 pow(i64 a, i64 n) {
  if (n < 0) return a == 1 ? 1 : a == -1 ? 1 - 2 * (n & 1) : 0;
  u64 y = 1, square = static_cast<u64>(a);
  for (; n > 0; n >>= 1, square *= square)
    if (n & 1) y *= square;
  return T::wrap(static_cast<i64>(y));
}
template <class T>
__device__ i64 shift_left(i64 a, i64 n) {
  return n < 0 || n >= T::kBits ? 0 : T::wrap(static_cast<i64>(static_cast<u64>(a) << n));
}
template <class T>
__device__ i64 shift_right(i64 a, i64 n) {
  return n < 0 || n >= T::kBits ? (a < 0 ? -1 : 0) : a >> n;
}
// Truncated; NaN gives 0, and what lies beyond the range its end.
template <class T>
__device__ i64 truncated(double v) {
  if (v != v) return 0;
  if (v >= 0x1p63) return T::kGreatest;
  if (v < -0x1p63) return T::kLeast;
  const i64 i = static_cast<i64>(v);
  return i < T::kLeast ? T::kLeast : i > T::kGreatest ? T::kGreatest : i;
}

}  // namespace integer

// Elements that one thread takes at once: a copy of up to 16 bytes at a time.
template <class S, int n>
struct alignas(sizeof(S) * n < 16 ? sizeof(S) * n : 16) Pack {
  S v[n];
};
// The bits of a Pack, in words of 4 bytes unless it is smaller.
template <int n_bytes>
struct Word {
  using Type = u32;
};
template <>
struct Word<2> {
  using Type = unsigned short;
};
template <>
struct Word<1> {
  using Type = unsigned char;
};
template <class P>
struct alignas(alignof(P)) Words {
  using Type = typename Word<sizeof(P) < 4 ? sizeof(P) : 4>::Type;
  Type word[sizeof(P) / sizeof(Type)];
};
template <class T>
struct Unpacked {
  template <int n>
  __device__ static typename T::Value of(const Pack<typename T::Storage, n>& a, int u) {
    return T::widen(a.v[u]);
  }
};
// The upper of two in a word is the word without the lower: one instruction.
template <>
struct Unpacked<BF16> {
  template <int n>
  __device__ static float of(const Pack<unsigned short, n>& a, int u) {
    if (n % 2 != 0) return BF16::widen(a.v[u]);
    const u32 both = reinterpret_cast<const u32*>(a.v)[u / 2];
    return as_float(u % 2 == 0 ? both << 16 : both & 0xffff0000u);
  }
};
// n elements in a row, as a type, so that a lambda knows it when it is compiled.
template <int n>
struct Width {
  static constexpr int value = n;
};

// Positions are never negative.
__device__ inline int quotient(int a, int b) {
  return static_cast<int>(static_cast<u32>(a) / static_cast<u32>(b));
}
__device__ inline i64 quotient(i64 a, i64 b) {
  return static_cast<i64>(static_cast<u64>(a) / static_cast<u64>(b));
}

}  // namespace tegula::cuda::tile
