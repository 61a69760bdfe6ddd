// The instructions of tile programs on the device, by the names of tile/program.h: op<T>(sources)
// computes in the class of its sources and rounds to the dtype T. max and min propagate NaN, a
// comparison or a logical instruction gives 1 or 0 in f32. What f64's functions give is CUDA's
// (1 or 2 ulp), all else has the CPU's bits.
#pragma once

#include "tegula/kernels/cuda/tile_f32.cuh"
#include "tegula/kernels/cuda/tile_wide.cuh"

namespace tegula::cuda::tile {

// NaN wins.
template <class V>
__device__ V largest(V a, V b) {
  return a > b || a != a ? a : b;
}
template <class V>
__device__ V smallest(V a, V b) {
  return a < b || a != a ? a : b;
}

// f64: what the CPU flushes is flushed here by hand.
namespace f64 {
__device__ inline double negated(double a) { return as_double(bits(a) ^ 0x8000000000000000u); }
__device__ inline double relu(double a) { return 0 > a ? 0.0 : a; }
__device__ inline double sigmoid(double a) { return 1 / (1 + ::exp(-a)); }
__device__ inline double gelu(double a) {
  const double minus_2u = -2 * 0.7978845608028654 * (a + 0.044715 * a * a * a);
  return a == -wide::inf() ? -0.0 : a / (1 + ::exp(minus_2u));
}
__device__ inline double silu(double a) { return a == -wide::inf() ? -0.0 : a / (1 + ::exp(-a)); }
__device__ inline double remainder(double a, double b) {
  const double r = ::fmod(a, b);
  if (r == 0) return wide::copysign(r, b);
  return wide::is_negative(r) != wide::is_negative(b) ? r + b : r;
}
// ⌊a/b⌋ through the remainder, because a/b itself may round up to an integer.
__device__ inline double floor_divide(double a, double b) {
  const double q = a / b;
  if (b == 0 || q != q) return q;
  const double r = ::fmod(a, b);
  double whole = (a - r) / b;
  if (r != 0 && wide::is_negative(r) != wide::is_negative(b)) whole -= 1;
  return whole == 0 ? wide::copysign(whole, q) : ::rint(whole);
}
}  // namespace f64

// Signs as the CPU changes them: a denormal number stays, which the compiler's own neg and abs
// flush.
__device__ inline u32 flipped(u32 a, u32 which) {
  u32 r;
  asm("xor.b32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(which));
  return r;
}
__device__ inline u32 masked(u32 a, u32 which) {
  u32 r;
  asm("and.b32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(which));
  return r;
}

#define TILE_UNARY_F32(name, expression)             \
  template <class T>                                 \
  __device__ float name(float a) {                   \
    return T::round(static_cast<float>(expression)); \
  }
#define TILE_UNARY_F64(name, expression) \
  template <class T>                     \
  __device__ double name(double a) {     \
    a = flushed(a);                      \
    return flushed(expression);          \
  }
// Bits alone: a denormal number stays.
#define TILE_BITS_F64(name, expression) \
  template <class T>                    \
  __device__ double name(double a) {    \
    return expression;                  \
  }
#define TILE_UNARY_I64(name, expression) \
  template <class T>                     \
  __device__ i64 name(i64 a) {           \
    return T::wrap(expression);          \
  }
#define TILE_FUNCTION(name, in_f32, in_f64) \
  TILE_UNARY_F32(name, in_f32)              \
  TILE_UNARY_F64(name, in_f64)
#define TILE_WIDE(name) TILE_FUNCTION(name, to_f32(wide::name(a)), ::name(a))

TILE_UNARY_F32(copy, a)
TILE_BITS_F64(copy, a)
TILE_UNARY_I64(copy, a)
TILE_UNARY_F32(neg, as_float(flipped(bits(a), 0x80000000u)))
TILE_BITS_F64(neg, f64::negated(a))
TILE_UNARY_I64(neg, static_cast<i64>(-static_cast<u64>(a)))
TILE_UNARY_F32(abs, as_float(masked(bits(a), 0x7fffffffu)))
TILE_BITS_F64(abs, wide::abs(a))
TILE_UNARY_I64(abs, a < 0 ? static_cast<i64>(-static_cast<u64>(a)) : a)
TILE_UNARY_F32(sign, (a > 0 ? 1.0f : 0.0f) - (a < 0 ? 1.0f : 0.0f))
TILE_UNARY_F64(sign, (a > 0 ? 1.0 : 0.0) - (a < 0 ? 1.0 : 0.0))
TILE_UNARY_I64(sign, (a > 0 ? 1 : 0) - (a < 0 ? 1 : 0))
TILE_UNARY_F32(floor, ::floorf(a))
TILE_UNARY_F64(floor, ::floor(a))
TILE_UNARY_I64(floor, a)
TILE_UNARY_F32(round, ::rintf(a))
TILE_UNARY_F64(round, ::rint(a))
TILE_UNARY_I64(round, a)
TILE_UNARY_F32(trunc, f32::copysign(::floorf(f32::abs(a)), a))
TILE_UNARY_F64(trunc, ::trunc(a))
TILE_UNARY_I64(trunc, a)
TILE_UNARY_F32(relu, f32::relu(a))
TILE_BITS_F64(relu, f64::relu(a))
TILE_UNARY_I64(relu, a > 0 ? a : 0)
TILE_FUNCTION(exp, f32::exp(a), ::exp(a))
TILE_FUNCTION(log, f32::log(a), ::log(a))
TILE_FUNCTION(sqrt, ::sqrtf(a), ::sqrt(a))
TILE_FUNCTION(rsqrt, f32::rsqrt(a), 1 / ::sqrt(a))
TILE_FUNCTION(reciprocal, 1.0f / a, 1 / a)
TILE_FUNCTION(tanh, f32::tanh(a), ::tanh(a))
TILE_FUNCTION(sigmoid, f32::sigmoid(a), f64::sigmoid(a))
TILE_FUNCTION(erf, f32::erf(a), ::erf(a))
TILE_FUNCTION(sin, f32::sin(a), ::sin(a))
TILE_FUNCTION(cos, f32::cos(a), ::cos(a))
TILE_FUNCTION(gelu, f32::gelu(a), f64::gelu(a))
TILE_FUNCTION(silu, f32::silu(a), f64::silu(a))
TILE_WIDE(exp2)
TILE_WIDE(expm1)
TILE_WIDE(log2)
TILE_WIDE(log10)
TILE_WIDE(log1p)
TILE_WIDE(tan)
TILE_WIDE(asin)
TILE_WIDE(acos)
TILE_WIDE(atan)
TILE_WIDE(sinh)
TILE_WIDE(cosh)
TILE_WIDE(asinh)
TILE_WIDE(acosh)
TILE_WIDE(atanh)
TILE_WIDE(erfc)

#define TILE_BINARY_F32(name, expression)            \
  template <class T>                                 \
  __device__ float name(float a, float b) {          \
    return T::round(static_cast<float>(expression)); \
  }
#define TILE_BINARY_F64(name, expression)      \
  template <class T>                           \
  __device__ double name(double a, double b) { \
    a = flushed(a), b = flushed(b);            \
    return flushed(expression);                \
  }
#define TILE_BINARY_I64(name, expression) \
  template <class T>                      \
  __device__ i64 name(i64 a, i64 b) {     \
    return T::wrap(expression);           \
  }
#define TILE_SUM(name, op)      \
  TILE_BINARY_F32(name, a op b) \
  TILE_BINARY_F64(name, a op b) \
  TILE_BINARY_I64(name, static_cast<i64>(static_cast<u64>(a) op static_cast<u64>(b)))

TILE_SUM(add, +)
TILE_SUM(sub, -)
TILE_SUM(mul, *)
TILE_BINARY_F32(div, a / b)
TILE_BINARY_F64(div, a / b)
TILE_BINARY_I64(div, integer::divide<T>(a, b))
TILE_BINARY_F32(max, largest(a, b))
TILE_BINARY_F64(max, largest(a, b))
TILE_BINARY_I64(max, largest(a, b))
TILE_BINARY_F32(min, smallest(a, b))
TILE_BINARY_F64(min, smallest(a, b))
TILE_BINARY_I64(min, smallest(a, b))
TILE_BINARY_F32(copysign, f32::copysign(a, b))
TILE_BINARY_F64(copysign, wide::copysign(a, b))
TILE_BINARY_F32(atan2, to_f32(wide::atan2(a, b)))
TILE_BINARY_F64(atan2, ::atan2(a, b))
TILE_BINARY_F32(hypot, to_f32(wide::hypot(a, b)))
TILE_BINARY_F64(hypot, ::hypot(a, b))

// bool has arithmetic of its own where floats and integers differ: it is an integer of 0 and 1.
template <class T>
struct IsBool {
  static constexpr bool value = false;
};
template <>
struct IsBool<Bool> {
  static constexpr bool value = true;
};
#define TILE_DIVISION(name, in_f32, in_f64, in_i64)               \
  template <class T>                                              \
  __device__ i64 name(i64 x, i64 y) {                             \
    return in_i64;                                                \
  }                                                               \
  template <class T>                                              \
  __device__ float name(float a, float b) {                       \
    if constexpr (IsBool<T>::value) {                             \
      const i64 x = static_cast<i64>(a), y = static_cast<i64>(b); \
      return static_cast<float>(Bool::wrap(in_i64));              \
    } else {                                                      \
      const double x = a, y = b;                                  \
      return T::round(to_f32(in_f32));                            \
    }                                                             \
  }                                                               \
  template <class T>                                              \
  __device__ double name(double a, double b) {                    \
    const double x = flushed(a), y = flushed(b);                  \
    return flushed(in_f64);                                       \
  }
TILE_DIVISION(pow, ::pow(x, y), ::pow(x, y), integer::pow<T>(x, y))
TILE_DIVISION(fmod, wide::fmod(x, y), ::fmod(x, y), T::wrap(integer::fmod(x, y)))
TILE_DIVISION(remainder, wide::remainder(x, y), f64::remainder(x, y),
              T::wrap(integer::remainder(x, y)))
TILE_DIVISION(floor_divide, wide::floor_divide(x, y), f64::floor_divide(x, y),
              integer::floor_divide<T>(x, y))

#define TILE_BITS(name, expression)                                               \
  template <class T>                                                              \
  __device__ i64 name(i64 x, i64 y) {                                             \
    return T::wrap(expression);                                                   \
  }                                                                               \
  template <class T>                                                              \
  __device__ float name(float a, float b) {                                       \
    return static_cast<float>(name<T>(static_cast<i64>(a), static_cast<i64>(b))); \
  }
TILE_BITS(bit_and, x& y)
TILE_BITS(bit_or, x | y)
TILE_BITS(bit_xor, x ^ y)
TILE_BITS(shift_left, integer::shift_left<T>(x, y))
TILE_BITS(shift_right, integer::shift_right<T>(x, y))

#define TILE_COMPARE(name, op)                     \
  template <class T, class V>                      \
  __device__ float name(V a, V b) {                \
    return a op b ? 1.0f : 0.0f;                   \
  }                                                \
  template <class T>                               \
  __device__ float name(double a, double b) {      \
    return flushed(a) op flushed(b) ? 1.0f : 0.0f; \
  }
TILE_COMPARE(eq, ==)
TILE_COMPARE(ne, !=)
TILE_COMPARE(lt, <)
TILE_COMPARE(le, <=)
TILE_COMPARE(gt, >)
TILE_COMPARE(ge, >=)

template <class T>
__device__ float logical_not(float a) {
  return a == 0 ? 1.0f : 0.0f;
}
template <class T>
__device__ float logical_and(float a, float b) {
  return a != 0 && b != 0 ? 1.0f : 0.0f;
}
template <class T>
__device__ float logical_or(float a, float b) {
  return a != 0 || b != 0 ? 1.0f : 0.0f;
}
template <class T, class V>
__device__ V select(float m, V a, V b) {
  return T::round(m != 0 ? a : b);
}

template <class T>
__device__ float fma(float a, float b, float c) {
  return T::round(__fmaf_rn(a, b, c));
}
template <class T>
__device__ double fma(double a, double b, double c) {
  return flushed(__fma_rn(flushed(a), flushed(b), flushed(c)));
}
template <class T>
__device__ i64 fma(i64 a, i64 b, i64 c) {
  return T::wrap(static_cast<i64>(static_cast<u64>(a) * static_cast<u64>(b) + static_cast<u64>(c)));
}

// From any class to T's.
template <class T, class V, class R>
struct Cast {
  __device__ static R of(V a) { return T::round(static_cast<R>(a)); }
};
template <class T>
struct Cast<T, double, float> {
  __device__ static float of(double a) {
    return IsBool<T>::value ? (flushed(a) != 0 ? 1.0f : 0.0f) : T::round(to_f32(a));
  }
};
template <class T>
struct Cast<T, float, i64> {
  __device__ static i64 of(float a) { return integer::truncated<T>(static_cast<double>(a)); }
};
template <class T>
struct Cast<T, double, i64> {
  __device__ static i64 of(double a) { return integer::truncated<T>(a); }
};
template <class T, class V>
__device__ typename T::Value cast(V a) {
  return Cast<T, V, typename T::Value>::of(a);
}

// Philox4x32-10, as base/philox.h: output `index` of a stream, uniform in [0, 1). Word `index & 3`
// of its block, which neighbours share: the compiler makes the block once where it sees that.
__device__ inline float random_uniform(i64 seed, u64 stream, u64 block, int word) {
  u32 c0 = static_cast<u32>(block), c1 = static_cast<u32>(block >> 32);
  u32 c2 = static_cast<u32>(stream), c3 = static_cast<u32>(stream >> 32);
  u32 k0 = static_cast<u32>(static_cast<u64>(seed)),
      k1 = static_cast<u32>(static_cast<u64>(seed) >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const u64 p0 = u64{0xD2511F53u} * c0, p1 = u64{0xCD9E8D57u} * c2;
    c0 = static_cast<u32>(p1 >> 32) ^ c1 ^ k0, c1 = static_cast<u32>(p1);
    c2 = static_cast<u32>(p0 >> 32) ^ c3 ^ k1, c3 = static_cast<u32>(p0);
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  const u32 r = word == 0 ? c0 : word == 1 ? c1 : word == 2 ? c2 : c3;
  return static_cast<float>(r >> 8) * 0x1p-24f;
}

// The functions that a reduction combines with, before it rounds.
struct Sum {
  __device__ static float of(float a, float b) { return a + b; }
  __device__ static double of(double a, double b) { return flushed(a + flushed(b)); }
  __device__ static i64 of(i64 a, i64 b) {
    return static_cast<i64>(static_cast<u64>(a) + static_cast<u64>(b));
  }
};
struct Product {
  __device__ static float of(float a, float b) { return a * b; }
  __device__ static double of(double a, double b) { return flushed(a * flushed(b)); }
  __device__ static i64 of(i64 a, i64 b) {
    return static_cast<i64>(static_cast<u64>(a) * static_cast<u64>(b));
  }
};
struct Largest {
  template <class V>
  __device__ static V of(V a, V b) {
    return largest(a, b);
  }
};
struct Smallest {
  template <class V>
  __device__ static V of(V a, V b) {
    return smallest(a, b);
  }
};

// Shared memory of a block's sums. The programs of a kernel of several have it one after another.
template <int kWhich, int kWords>
__device__ __forceinline__ i64* shared_words() {
  __shared__ i64 words[kWords];
  return words;
}

// A chain of f32 that may be long: what kSumPart of its elements have summed goes into a total in
// f64, and it begins anew (tile/long_sum.h).
struct LongSum {
  float part = 0;
  int n = 0;
  double total = 0;
  __device__ void add(float x) {
    if (n == 32) total += static_cast<double>(part), part = 0, n = 0;
    part += x, ++n;
  }
  __device__ float value() const { return static_cast<float>(total + static_cast<double>(part)); }
};

// A chain goes on by one value.
template <class C, class V>
__device__ void go_on(V& r, V x) {
  r = C::of(r, x);
}
template <class C>
__device__ void go_on(LongSum& r, float x) {
  r.add(x);
}

// One of the 16 chains of order lane16, over n more values of a row: elements lane, lane + 16, ….
template <class C, class R, class V>
__device__ void chain(R& r, const V* values, int n, int lane) {
  int j = lane;
  for (; j + 7 * 16 < n; j += 8 * 16) {
    V v[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) v[k] = values[j + 16 * k];
#pragma unroll
    for (int k = 0; k < 8; ++k) go_on<C>(r, v[k]);
  }
  for (; j < n; j += 16) go_on<C>(r, values[j]);
}
// The same over n values, where the text knows n, whole steps of 16.
template <class C, int n, class R, class V>
__device__ void chain(R& r, const V* values, int lane) {
  values += lane;
#pragma unroll 16
  for (int j = 0; j < n; j += 16) go_on<C>(r, values[j]);
}
// The end of order lane16 over the 16 lanes of `group`, half a warp: lane j takes j + 8, then j +
// 4, j + 2, j + 1; all get lane 0's.
template <class C, class V>
__device__ V joined(u32 group, V a) {
#pragma unroll
  for (int apart = 8; apart > 0; apart /= 2) a = C::of(a, __shfl_down_sync(group, a, apart, 16));
  return __shfl_sync(group, a, 0, 16);
}
// The same where the 16 lanes of a row are `step` threads apart, by way of shared memory: every
// thread of the block comes here.
template <class C, int step, class V>
__device__ V joined_across(void* room, V a) {
  V* const all = static_cast<V*>(room);
  const int row = static_cast<int>(threadIdx.x) % step;
  __syncthreads();
  all[threadIdx.x] = a;
  __syncthreads();
  V lane[16];
#pragma unroll
  for (int j = 0; j < 16; ++j) lane[j] = all[j * step + row];
#pragma unroll
  for (int apart = 8; apart > 0; apart /= 2)
#pragma unroll
    for (int j = 0; j < 8; ++j)
      if (j < apart) lane[j] = C::of(lane[j], lane[j + apart]);
  return lane[0];
}

}  // namespace tegula::cuda::tile
