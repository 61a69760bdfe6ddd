// Vf on AVX2 with FMA and F16C; vec.h says what each operation does.
#pragma once

#if defined(__GNUC__) && !defined(__clang__)
// GCC's <immintrin.h> holds AVX-512, too: it takes ten times as long to parse as these parts of it,
// each of which needs those before it.
#define _IMMINTRIN_H_INCLUDED
// clang-format off
#include <smmintrin.h>
#include <avxintrin.h>
#include <avx2intrin.h>
#include <fmaintrin.h>
#include <f16cintrin.h>
// clang-format on
#else
#include <immintrin.h>
#endif

namespace tegula::kernel::avx2 {

inline constexpr int kLanes = 8;

struct Vf {
  __m256 v;
};
struct Vd {
  __m256d low, high;
};
struct Vi {
  __m256i v;
};
struct Vm {
  __m256 v;  // all bits of a lane set: true
};

TEGULA_VEC Vf set1(float x) { return {_mm256_set1_ps(x)}; }
TEGULA_VEC Vf zero() { return {_mm256_setzero_ps()}; }
TEGULA_VEC Vi set1i(int32_t x) { return {_mm256_set1_epi32(x)}; }
TEGULA_VEC Vi iota() { return {_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)}; }

TEGULA_VEC Vf bitcast_f(__m256i v) { return {_mm256_castsi256_ps(v)}; }
TEGULA_VEC Vi bits(Vf a) { return {_mm256_castps_si256(a.v)}; }
TEGULA_VEC Vf as_float(Vi a) { return bitcast_f(a.v); }
TEGULA_VEC Vm first_n(int n) {
  return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n), iota().v))};
}

TEGULA_VEC Vf load(const float* p) { return {_mm256_loadu_ps(p)}; }
TEGULA_VEC void store(float* p, Vf a) { _mm256_storeu_ps(p, a.v); }
TEGULA_VEC Vf load_n(const float* p, int n) {
  return {_mm256_maskload_ps(p, _mm256_castps_si256(first_n(n).v))};
}
TEGULA_VEC void store_n(float* p, Vf a, int n) {
  _mm256_maskstore_ps(p, _mm256_castps_si256(first_n(n).v), a.v);
}
TEGULA_VEC Vi loadi(const int32_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
}
TEGULA_VEC void storei(int32_t* p, Vi a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.v);
}

TEGULA_VEC Vf operator+(Vf a, Vf b) { return {_mm256_add_ps(a.v, b.v)}; }
TEGULA_VEC Vf operator-(Vf a, Vf b) { return {_mm256_sub_ps(a.v, b.v)}; }
TEGULA_VEC Vf operator*(Vf a, Vf b) { return {_mm256_mul_ps(a.v, b.v)}; }
TEGULA_VEC Vf operator/(Vf a, Vf b) { return {_mm256_div_ps(a.v, b.v)}; }
TEGULA_VEC Vf fma(Vf a, Vf b, Vf c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
TEGULA_VEC Vf fnma(Vf a, Vf b, Vf c) { return {_mm256_fnmadd_ps(a.v, b.v, c.v)}; }
TEGULA_VEC Vf max(Vf a, Vf b) { return {_mm256_max_ps(a.v, b.v)}; }
TEGULA_VEC Vf min(Vf a, Vf b) { return {_mm256_min_ps(a.v, b.v)}; }
TEGULA_VEC Vf sqrt(Vf a) { return {_mm256_sqrt_ps(a.v)}; }
TEGULA_VEC Vf round(Vf a) {
  return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
TEGULA_VEC Vf floor(Vf a) { return {_mm256_floor_ps(a.v)}; }

TEGULA_VEC Vm eq(Vf a, Vf b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_EQ_OQ)}; }
TEGULA_VEC Vm ne(Vf a, Vf b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_NEQ_UQ)}; }
TEGULA_VEC Vm lt(Vf a, Vf b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)}; }
TEGULA_VEC Vm le(Vf a, Vf b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LE_OQ)}; }
TEGULA_VEC Vm gt(Vf a, Vf b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_GT_OQ)}; }
TEGULA_VEC Vm ge(Vf a, Vf b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_GE_OQ)}; }
TEGULA_VEC Vm eqi(Vi a, Vi b) { return {_mm256_castsi256_ps(_mm256_cmpeq_epi32(a.v, b.v))}; }
TEGULA_VEC Vm gti(Vi a, Vi b) { return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(a.v, b.v))}; }
TEGULA_VEC Vm operator&(Vm a, Vm b) { return {_mm256_and_ps(a.v, b.v)}; }
TEGULA_VEC Vm operator|(Vm a, Vm b) { return {_mm256_or_ps(a.v, b.v)}; }
TEGULA_VEC Vm operator~(Vm a) {
  return {_mm256_xor_ps(a.v, _mm256_castsi256_ps(_mm256_set1_epi32(-1)))};
}
TEGULA_VEC bool any(Vm a) { return _mm256_movemask_ps(a.v) != 0; }
TEGULA_VEC bool all(Vm a) { return _mm256_movemask_ps(a.v) == 0xff; }
TEGULA_VEC Vf select(Vm m, Vf a, Vf b) { return {_mm256_blendv_ps(b.v, a.v, m.v)}; }
TEGULA_VEC Vi select(Vm m, Vi a, Vi b) { return bits(select(m, as_float(a), as_float(b))); }

TEGULA_VEC Vi operator+(Vi a, Vi b) { return {_mm256_add_epi32(a.v, b.v)}; }
TEGULA_VEC Vi operator-(Vi a, Vi b) { return {_mm256_sub_epi32(a.v, b.v)}; }
TEGULA_VEC Vi operator&(Vi a, Vi b) { return {_mm256_and_si256(a.v, b.v)}; }
TEGULA_VEC Vi operator|(Vi a, Vi b) { return {_mm256_or_si256(a.v, b.v)}; }
TEGULA_VEC Vi operator^(Vi a, Vi b) { return {_mm256_xor_si256(a.v, b.v)}; }
template <int K>
TEGULA_VEC Vi shl(Vi a) {
  return {_mm256_slli_epi32(a.v, K)};
}
template <int K>
TEGULA_VEC Vi shr(Vi a) {
  return {_mm256_srli_epi32(a.v, K)};
}
template <int K>
TEGULA_VEC Vi sar(Vi a) {
  return {_mm256_srai_epi32(a.v, K)};
}
TEGULA_VEC Vi to_int(Vf a) { return {_mm256_cvtps_epi32(a.v)}; }
TEGULA_VEC Vf to_float(Vi a) { return {_mm256_cvtepi32_ps(a.v)}; }
TEGULA_VEC Vf gather(const float* base, Vi index) {
  return {_mm256_i32gather_ps(base, index.v, 4)};
}

TEGULA_VEC Vi load_u16(const void* p) {
  return {_mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)))};
}
// The low 16 bits of each lane, which must be the whole lane.
TEGULA_VEC void store_u16(void* p, Vi a) {
  const __m256i packed = _mm256_packus_epi32(a.v, a.v);
  _mm_storeu_si128(static_cast<__m128i*>(p),
                   _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08)));
}
TEGULA_VEC Vf widen_f16(const void* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)))};
}
TEGULA_VEC void narrow_f16(void* p, Vf a) {
  // The instruction keeps NaN payloads; f16(float) does not.
  const __m256 quiet = _mm256_or_ps(_mm256_and_ps(a.v, _mm256_set1_ps(-0.0f)),
                                    _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)));
  const Vf clean = select(ne(a, a), {quiet}, a);
  _mm_storeu_si128(static_cast<__m128i*>(p),
                   _mm256_cvtps_ph(clean.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

// Lane j takes j + 4, then j + 2, then j + 1: the end of the tree of "lane16".
TEGULA_VEC float sum_lanes(Vf a) {
  const __m128 s = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 t = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(t, _mm_movehdup_ps(t)));
}
TEGULA_VEC float max_lanes(Vf a) {
  const __m128 s = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 t = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(t, _mm_movehdup_ps(t)));
}

// Row j becomes column j.
TEGULA_VEC void transpose(Vf (&r)[8]) {
  __m256 t[8], u[8];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_ps(r[2 * i].v, r[2 * i + 1].v);
    t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i].v, r[2 * i + 1].v);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    r[i].v = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
    r[i + 4].v = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
  }
}

// r[e] = column e of kLanes rows, `stride` apart: a transpose that needs few registers.
TEGULA_VEC void load_columns4(const float* p, int64_t stride, Vf (&r)[4]) {
  __m256 t[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
    t[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p + i * stride)),
                                _mm_loadu_ps(p + (i + 4) * stride), 1);
  const __m256 a = _mm256_unpacklo_ps(t[0], t[1]), b = _mm256_unpackhi_ps(t[0], t[1]);
  const __m256 c = _mm256_unpacklo_ps(t[2], t[3]), d = _mm256_unpackhi_ps(t[2], t[3]);
  r[0].v = _mm256_shuffle_ps(a, c, 0x44), r[1].v = _mm256_shuffle_ps(a, c, 0xee);
  r[2].v = _mm256_shuffle_ps(b, d, 0x44), r[3].v = _mm256_shuffle_ps(b, d, 0xee);
}
inline constexpr int kSquare = 4;  // load_transposed has as many columns
TEGULA_VEC void load_transposed(const float* p, int64_t stride, Vf (&r)[kSquare]) {
  load_columns4(p, stride, r);
}

// kLanes neighbouring bytes as integers.
TEGULA_VEC Vi load_u8(const void* p) {
  return {_mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p)))};
}
TEGULA_VEC Vi load_i8(const void* p) {
  return {_mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p)))};
}

TEGULA_VEC Vd zero_d() { return {_mm256_setzero_pd(), _mm256_setzero_pd()}; }
TEGULA_VEC Vd load(const double* p) { return {_mm256_loadu_pd(p), _mm256_loadu_pd(p + 4)}; }
TEGULA_VEC void store(double* p, Vd a) {
  _mm256_storeu_pd(p, a.low);
  _mm256_storeu_pd(p + 4, a.high);
}
TEGULA_VEC Vd operator+(Vd a, Vd b) {
  return {_mm256_add_pd(a.low, b.low), _mm256_add_pd(a.high, b.high)};
}
TEGULA_VEC Vd widened(Vf a) {
  return {_mm256_cvtps_pd(_mm256_castps256_ps128(a.v)),
          _mm256_cvtps_pd(_mm256_extractf128_ps(a.v, 1))};
}
TEGULA_VEC Vf rounded(Vd a) {
  return {_mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps(a.low)),
                               _mm256_cvtpd_ps(a.high), 1)};
}

}  // namespace tegula::kernel::avx2
