// A vector of kLanes f32: 16 on AVX-512, 8 on AVX2 and in the portable build.
//
// A source in isa/ is compiled once per instruction set, each time in its own namespace
// tegula::kernel::TEGULA_ISA_NS; other sources that include this header get the portable build.
// Every operation gives the same bits on every instruction set (NaN payloads excepted):
//   a + b, a - b, a * b, a / b, sqrt   one IEEE rounding
//   fma(a, b, c)    a·b + c with one rounding; nothing else is ever contracted
//   fnma(a, b, c)   c - a·b with one rounding
//   max(a, b)       a > b ? a : b, so b where either is NaN; min(a, b) is a < b ? a : b
//   round(a)        to the nearest integer, ties to even
//   to_int(a)       round(a) as i32; INT_MIN where it does not fit or is NaN
//   split_exponent(a), times_exp2(b, n)   for 2^a: below
//   widened(a), rounded(d)   as many f64 (Vd) and back; they have zero_d(), a + b, load, store
//   load/store      f32, bf16 and f16 (widened; stores round to nearest even), any alignment
//   transpose(r)    row j of kLanes vectors becomes column j
//   load_n/store_n  the first n lanes only (0 ≤ n ≤ kLanes); lanes not loaded are 0
//
// Order "lane16": a reduction over a row keeps 16 partial results; partial j takes elements
// j, j+16, j+32, … in ascending order, starting from the neutral element; then partial j takes
// j+8, then j+4, then j+2, then j+1. Row16 does this with one register on AVX-512 and two
// elsewhere, hence with equal bits. Every reduction along a row uses this order. A sum goes into a
// total in f64 with every 32nd element of a partial result, which then begins anew (LongSum below):
// so a row of any length has the error of a short one, and one of up to 512 elements is one part.
#pragma once

#include <cstdint>
#include <cstring>

#include "tegula/base/half.h"
#include "tegula/tile/long_sum.h"

// Internal linkage, always inlined: nothing compiled for one instruction set leaks to another.
#define TEGULA_VEC static inline __attribute__((always_inline, unused))

// Where the compiler has no multiply-add (portable code on x86-64), fma is a call, which takes
// longer than all around it. Functions of some length are then called, too, and loops over
// registers stay loops: a fifth of the compiler's work.
#if defined(TEGULA_ISA_AVX512) || defined(TEGULA_ISA_AVX2) || defined(__FP_FAST_FMAF)
#define TEGULA_VEC_LONG TEGULA_VEC
#define TEGULA_UNROLLS 1
#else
#define TEGULA_VEC_LONG static __attribute__((noinline, unused))
#define TEGULA_UNROLLS 0
#endif

#if defined(TEGULA_ISA_AVX512)
#define TEGULA_ISA_NS avx512
#include "tegula/kernels/cpu/isa/vec_avx512.h"
#elif defined(TEGULA_ISA_AVX2)
#define TEGULA_ISA_NS avx2
#include "tegula/kernels/cpu/isa/vec_avx2.h"
#elif defined(TEGULA_ISA_COUNTED)
#define TEGULA_ISA_NS counted
#include "tegula/kernels/cpu/isa/vec_counted.h"
#else
#define TEGULA_ISA_NS portable
#include "tegula/kernels/cpu/isa/vec_portable.h"
#endif

namespace tegula::kernel::TEGULA_ISA_NS {

// The argument of `#pragma GCC unroll` for loops over registers.
constexpr int unrolled(int n) { return TEGULA_UNROLLS ? n : 1; }

#if !defined(TEGULA_ISA_COUNTED)
// One f32 of memory to all lanes. (The counted build counts it as one read.)
TEGULA_VEC Vf broadcast(const float* p) { return set1(*p); }
#endif
#if !defined(TEGULA_ISA_AVX512)
// a becomes n, the nearest integer, and a - n is returned; b·2^n, for b in [1/2, 2]. AVX-512 has
// instructions that take any a; elsewhere n is between the exponents of 0 and inf. NaN stays.
TEGULA_VEC Vf split_exponent(Vf& a) {
  const Vf x = min(set1(128.0f), max(set1(-127.0f), a));
  a = round(x);
  return x - a;
}
TEGULA_VEC Vf times_exp2(Vf b, Vf n) { return as_float(bits(b) + shl<23>(to_int(n))); }
#endif
TEGULA_VEC Vf operator-(Vf a) { return as_float(bits(a) ^ set1i(INT32_MIN)); }
TEGULA_VEC Vf abs(Vf a) { return as_float(bits(a) & set1i(INT32_MAX)); }
TEGULA_VEC Vf& operator+=(Vf& a, Vf b) { return a = a + b; }
TEGULA_VEC Vf& operator*=(Vf& a, Vf b) { return a = a * b; }
TEGULA_VEC Vm is_nan(Vf a) { return ne(a, a); }
// magnitude of a, sign of s
TEGULA_VEC Vf copysign(Vf a, Vf s) {
  return as_float((bits(a) & set1i(INT32_MAX)) | (bits(s) & set1i(INT32_MIN)));
}

TEGULA_VEC Vf widen_bf16(Vi u16) { return as_float(shl<16>(u16)); }
TEGULA_VEC_LONG Vi narrow_bf16(Vf a) {
#if defined(__AVX512BF16__)  // the same but for denormals, which sums of tiles are not
  return {_mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(a.v)))};
#endif
  const Vi u = bits(a);
  const Vi rounded = shr<16>(u + set1i(0x7fff) + (shr<16>(u) & set1i(1)));
  return select(is_nan(a), shr<16>(u) | set1i(0x40), rounded);
}

// The value that a stored bf16 widens to.
TEGULA_VEC_LONG Vf round_bf16(Vf a) {
#if defined(__AVX512BF16__)
  return widen_bf16(narrow_bf16(a));
#endif
  const Vi u = bits(a);
  const Vi rounded = u + set1i(0x7fff) + (shr<16>(u) & set1i(1));
  return as_float(select(is_nan(a), u | set1i(0x400000), rounded) & set1i(INT32_MIN >> 15));
}

TEGULA_VEC Vf load(const bf16* p) { return widen_bf16(load_u16(p)); }
TEGULA_VEC Vf load(const f16* p) { return widen_f16(p); }
TEGULA_VEC void store(bf16* p, Vf a) { store_u16(p, narrow_bf16(a)); }
TEGULA_VEC void store(f16* p, Vf a) { narrow_f16(p, a); }

#if !defined(TEGULA_ISA_AVX512)
// 16-bit tails go through a full vector on the stack.
TEGULA_VEC_LONG void load_u16_n(void* to, const void* p, int n) {
  std::memset(to, 0, 2 * kLanes);
  if (n > 0) std::memcpy(to, p, static_cast<size_t>(n < kLanes ? n : kLanes) * 2);
}
TEGULA_VEC_LONG void store_u16_n(void* p, const void* from, int n) {
  if (n > 0) std::memcpy(p, from, static_cast<size_t>(n < kLanes ? n : kLanes) * 2);
}
#endif
template <class T>
TEGULA_VEC Vf load_n(const T* p, int n) {
  static_assert(sizeof(T) == 2);
  T tmp[kLanes];
  load_u16_n(tmp, p, n);
  return load(tmp);
}
template <class T>
TEGULA_VEC void store_n(T* p, Vf a, int n) {
  static_assert(sizeof(T) == 2);
  T tmp[kLanes];
  store(tmp, a);
  store_u16_n(p, tmp, n);
}

// Sixteen logical lanes; see "lane16" above.
struct Row16 {
  static constexpr int kRegs = 16 / kLanes;
  Vf v[kRegs];
};

TEGULA_VEC Row16 row16(float x) {
  Row16 r;
  for (Vf& v : r.v) v = set1(x);
  return r;
}

// op(v, i) for each register; i is the index of its first lane.
template <class F>
TEGULA_VEC Row16 map16(F&& f) {
  Row16 r;
#pragma GCC unroll unrolled(2)
  for (int i = 0; i < Row16::kRegs; ++i) r.v[i] = f(i);
  return r;
}

template <class T>
TEGULA_VEC Row16 load16(const T* p) {
  return map16([&](int i) { return load(p + i * kLanes); });
}
// The first n lanes (n may be past 16); the others hold `fill`.
template <class T>
TEGULA_VEC_LONG Row16 load16_n(const T* p, int64_t n, float fill = 0) {
  if (n >= 16) return load16(p);
  return map16([&](int i) {
    const int left = static_cast<int>(n) - i * kLanes;
    if (left <= 0) return set1(fill);
    return select(first_n(left), load_n(p + i * kLanes, left), set1(fill));
  });
}
template <class T>
TEGULA_VEC_LONG void store16_n(T* p, const Row16& r, int64_t n) {
  for (int i = 0; i < Row16::kRegs; ++i) {
    const int64_t left = n - i * kLanes;
    if (left >= kLanes) {
      store(p + i * kLanes, r.v[i]);
    } else if (left > 0) {
      store_n(p + i * kLanes, r.v[i], static_cast<int>(left));
    }
  }
}

TEGULA_VEC Row16 operator+(const Row16& a, const Row16& b) {
  return map16([&](int i) { return a.v[i] + b.v[i]; });
}
TEGULA_VEC Row16 operator-(const Row16& a, const Row16& b) {
  return map16([&](int i) { return a.v[i] - b.v[i]; });
}
TEGULA_VEC Row16 operator*(const Row16& a, const Row16& b) {
  return map16([&](int i) { return a.v[i] * b.v[i]; });
}
TEGULA_VEC Row16 fma(const Row16& a, const Row16& b, const Row16& c) {
  return map16([&](int i) { return fma(a.v[i], b.v[i], c.v[i]); });
}
TEGULA_VEC Row16 max(const Row16& a, const Row16& b) {
  return map16([&](int i) { return max(a.v[i], b.v[i]); });
}

// The totals of a sum in order "lane16" whose partial results have begun anew.
struct LongSum {
  Vd v[Row16::kRegs];
};
TEGULA_VEC LongSum long_sum() {
  LongSum sum;
  for (Vd& v : sum.v) v = zero_d();
  return sum;
}
// Takes the partial results, which are 0 from then on.
TEGULA_VEC void take(LongSum& sum, Row16& part) {
#pragma GCC unroll unrolled(2)
  for (int i = 0; i < Row16::kRegs; ++i) sum.v[i] = sum.v[i] + widened(part.v[i]);
  part = row16(0);
}
// The totals and the last parts, rounded once.
TEGULA_VEC Row16 rounded(const LongSum& sum, const Row16& last) {
  return map16([&](int i) { return rounded(sum.v[i] + widened(last.v[i])); });
}

// The tree of "lane16".
TEGULA_VEC_LONG float reduce_add(const Row16& a) {
  return sum_lanes(Row16::kRegs == 1 ? a.v[0] : a.v[0] + a.v[Row16::kRegs - 1]);
}
TEGULA_VEC_LONG float reduce_max(const Row16& a) {
  return max_lanes(Row16::kRegs == 1 ? a.v[0] : max(a.v[0], a.v[Row16::kRegs - 1]));
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
