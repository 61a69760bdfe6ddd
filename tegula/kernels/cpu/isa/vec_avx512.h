// Vf on AVX-512 (F, BW, VL, DQ); vec.h says what each operation does.
#pragma once

#include <immintrin.h>

namespace tegula::kernel::avx512 {

inline constexpr int kLanes = 16;

struct Vf {
  __m512 v;
};
struct Vd {
  __m512d low, high;
};
struct Vi {
  __m512i v;
};
struct Vm {
  __mmask16 v;
};

TEGULA_VEC Vf set1(float x) { return {_mm512_set1_ps(x)}; }
TEGULA_VEC Vf zero() { return {_mm512_setzero_ps()}; }
TEGULA_VEC Vi set1i(int32_t x) { return {_mm512_set1_epi32(x)}; }
TEGULA_VEC Vi iota() {
  return {_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)};
}

TEGULA_VEC Vi bits(Vf a) { return {_mm512_castps_si512(a.v)}; }
TEGULA_VEC Vf as_float(Vi a) { return {_mm512_castsi512_ps(a.v)}; }
TEGULA_VEC Vm first_n(int n) {
  return {static_cast<__mmask16>(n >= 16 ? 0xffff : n <= 0 ? 0 : (1u << n) - 1)};
}

TEGULA_VEC Vf load(const float* p) { return {_mm512_loadu_ps(p)}; }
TEGULA_VEC void store(float* p, Vf a) { _mm512_storeu_ps(p, a.v); }
TEGULA_VEC Vf load_n(const float* p, int n) { return {_mm512_maskz_loadu_ps(first_n(n).v, p)}; }
TEGULA_VEC void store_n(float* p, Vf a, int n) { _mm512_mask_storeu_ps(p, first_n(n).v, a.v); }
TEGULA_VEC Vi loadi(const int32_t* p) { return {_mm512_loadu_si512(p)}; }
TEGULA_VEC void storei(int32_t* p, Vi a) { _mm512_storeu_si512(p, a.v); }

TEGULA_VEC Vf operator+(Vf a, Vf b) { return {_mm512_add_ps(a.v, b.v)}; }
TEGULA_VEC Vf operator-(Vf a, Vf b) { return {_mm512_sub_ps(a.v, b.v)}; }
TEGULA_VEC Vf operator*(Vf a, Vf b) { return {_mm512_mul_ps(a.v, b.v)}; }
TEGULA_VEC Vf operator/(Vf a, Vf b) { return {_mm512_div_ps(a.v, b.v)}; }
TEGULA_VEC Vf fma(Vf a, Vf b, Vf c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
TEGULA_VEC Vf fnma(Vf a, Vf b, Vf c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }
TEGULA_VEC Vf max(Vf a, Vf b) { return {_mm512_max_ps(a.v, b.v)}; }
TEGULA_VEC Vf min(Vf a, Vf b) { return {_mm512_min_ps(a.v, b.v)}; }
TEGULA_VEC Vf sqrt(Vf a) { return {_mm512_sqrt_ps(a.v)}; }
TEGULA_VEC Vf round(Vf a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
TEGULA_VEC Vf floor(Vf a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)};
}
TEGULA_VEC Vf split_exponent(Vf& a) {
  const Vf r = {_mm512_reduce_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
  a = a - r;  // an infinity stays
  return r;
}
TEGULA_VEC Vf times_exp2(Vf b, Vf n) { return {_mm512_scalef_ps(b.v, n.v)}; }

TEGULA_VEC Vm eq(Vf a, Vf b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)}; }
TEGULA_VEC Vm ne(Vf a, Vf b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_NEQ_UQ)}; }
TEGULA_VEC Vm lt(Vf a, Vf b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
TEGULA_VEC Vm le(Vf a, Vf b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LE_OQ)}; }
TEGULA_VEC Vm gt(Vf a, Vf b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ)}; }
TEGULA_VEC Vm ge(Vf a, Vf b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ)}; }
TEGULA_VEC Vm eqi(Vi a, Vi b) { return {_mm512_cmpeq_epi32_mask(a.v, b.v)}; }
TEGULA_VEC Vm gti(Vi a, Vi b) { return {_mm512_cmpgt_epi32_mask(a.v, b.v)}; }
TEGULA_VEC Vm operator&(Vm a, Vm b) { return {static_cast<__mmask16>(a.v & b.v)}; }
TEGULA_VEC Vm operator|(Vm a, Vm b) { return {static_cast<__mmask16>(a.v | b.v)}; }
TEGULA_VEC Vm operator~(Vm a) { return {static_cast<__mmask16>(~a.v)}; }
TEGULA_VEC bool any(Vm a) { return a.v != 0; }
TEGULA_VEC bool all(Vm a) { return a.v == 0xffff; }
TEGULA_VEC Vf select(Vm m, Vf a, Vf b) { return {_mm512_mask_blend_ps(m.v, b.v, a.v)}; }
TEGULA_VEC Vi select(Vm m, Vi a, Vi b) { return {_mm512_mask_blend_epi32(m.v, b.v, a.v)}; }

TEGULA_VEC Vi operator+(Vi a, Vi b) { return {_mm512_add_epi32(a.v, b.v)}; }
TEGULA_VEC Vi operator-(Vi a, Vi b) { return {_mm512_sub_epi32(a.v, b.v)}; }
TEGULA_VEC Vi operator&(Vi a, Vi b) { return {_mm512_and_si512(a.v, b.v)}; }
TEGULA_VEC Vi operator|(Vi a, Vi b) { return {_mm512_or_si512(a.v, b.v)}; }
TEGULA_VEC Vi operator^(Vi a, Vi b) { return {_mm512_xor_si512(a.v, b.v)}; }
template <int K>
TEGULA_VEC Vi shl(Vi a) {
  return {_mm512_slli_epi32(a.v, K)};
}
template <int K>
TEGULA_VEC Vi shr(Vi a) {
  return {_mm512_srli_epi32(a.v, K)};
}
template <int K>
TEGULA_VEC Vi sar(Vi a) {
  return {_mm512_srai_epi32(a.v, K)};
}
TEGULA_VEC Vi to_int(Vf a) { return {_mm512_cvtps_epi32(a.v)}; }
TEGULA_VEC Vf to_float(Vi a) { return {_mm512_cvtepi32_ps(a.v)}; }
TEGULA_VEC Vf gather(const float* base, Vi index) {
  return {_mm512_i32gather_ps(index.v, base, 4)};
}

TEGULA_VEC Vi load_u16(const void* p) {
  return {_mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)))};
}
TEGULA_VEC void store_u16(void* p, Vi a) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtepi32_epi16(a.v));
}
// The first n of 16, masked: bytes behind them are not touched.
TEGULA_VEC void load_u16_n(void* to, const void* p, int n) {
  _mm256_storeu_si256(static_cast<__m256i*>(to), _mm256_maskz_loadu_epi16(first_n(n).v, p));
}
TEGULA_VEC void store_u16_n(void* p, const void* from, int n) {
  _mm256_mask_storeu_epi16(p, first_n(n).v, _mm256_loadu_si256(static_cast<const __m256i*>(from)));
}
TEGULA_VEC Vf widen_f16(const void* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)))};
}
TEGULA_VEC void narrow_f16(void* p, Vf a) {
  // The instruction keeps NaN payloads; f16(float) does not.
  const __m512i sign = _mm512_and_si512(bits(a).v, _mm512_set1_epi32(INT32_MIN));
  const Vi quiet = {_mm512_or_si512(sign, _mm512_set1_epi32(0x7fc00000))};
  const Vf clean = select(ne(a, a), as_float(quiet), a);
  _mm256_storeu_si256(static_cast<__m256i*>(p),
                      _mm512_cvtps_ph(clean.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

// Lane j takes j + 8, then j + 4, j + 2, j + 1: the tree of "lane16".
TEGULA_VEC float sum_lanes(Vf a) {
  const __m256 e = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 s = _mm_add_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
  const __m128 t = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(t, _mm_movehdup_ps(t)));
}
TEGULA_VEC float max_lanes(Vf a) {
  const __m256 e = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 s = _mm_max_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
  const __m128 t = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(t, _mm_movehdup_ps(t)));
}

// Row j becomes column j.
TEGULA_VEC void transpose(Vf (&r)[16]) {
  __m512 t[16], u[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i].v, r[i + 1].v);
    t[i + 1] = _mm512_unpackhi_ps(r[i].v, r[i + 1].v);
  }
  // u[4b + c]: column c of each 128-bit block, of rows 4b .. 4b + 3
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    u[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
    u[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
    u[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    u[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512 lo02 = _mm512_shuffle_f32x4(u[c], u[4 + c], 0x88);
    const __m512 lo13 = _mm512_shuffle_f32x4(u[c], u[4 + c], 0xdd);
    const __m512 hi02 = _mm512_shuffle_f32x4(u[8 + c], u[12 + c], 0x88);
    const __m512 hi13 = _mm512_shuffle_f32x4(u[8 + c], u[12 + c], 0xdd);
    r[c].v = _mm512_shuffle_f32x4(lo02, hi02, 0x88);
    r[8 + c].v = _mm512_shuffle_f32x4(lo02, hi02, 0xdd);
    r[4 + c].v = _mm512_shuffle_f32x4(lo13, hi13, 0x88);
    r[12 + c].v = _mm512_shuffle_f32x4(lo13, hi13, 0xdd);
  }
}

// r[e] = column e of kLanes rows, `stride` apart, e < kSquare. From every third row's address one
// register reaches two more; an address for each would lie in memory.
inline constexpr int kSquare = kLanes;
TEGULA_VEC void load_transposed(const float* p, int64_t stride, Vf (&r)[kSquare]) {
#pragma GCC unroll 6
  for (int i = 0; i < kSquare; i += 3, p += 3 * stride) {
    asm("" : "+r"(p));
#pragma GCC unroll 3
    for (int l = 0; l < 3; ++l)
      if (i + l < kSquare) r[i + l] = load(p + l * stride);
  }
  transpose(r);
}

// r[e] = column e of kLanes rows, `stride` apart.
TEGULA_VEC void load_columns4(const float* p, int64_t stride, Vf (&r)[4]) {
  __m512 t[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const auto rows = [&](int l) { return _mm_loadu_ps(p + (i + l) * stride); };
    t[i] = _mm512_insertf32x4(_mm512_castps128_ps512(rows(0)), rows(4), 1);
    t[i] = _mm512_insertf32x4(_mm512_insertf32x4(t[i], rows(8), 2), rows(12), 3);
  }
  const __m512 a = _mm512_unpacklo_ps(t[0], t[1]), b = _mm512_unpackhi_ps(t[0], t[1]);
  const __m512 c = _mm512_unpacklo_ps(t[2], t[3]), d = _mm512_unpackhi_ps(t[2], t[3]);
  r[0].v = _mm512_shuffle_ps(a, c, 0x44), r[1].v = _mm512_shuffle_ps(a, c, 0xee);
  r[2].v = _mm512_shuffle_ps(b, d, 0x44), r[3].v = _mm512_shuffle_ps(b, d, 0xee);
}

// kLanes neighbouring bytes as integers.
TEGULA_VEC Vi load_u8(const void* p) {
  return {_mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)))};
}
TEGULA_VEC Vi load_i8(const void* p) {
  return {_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)))};
}

TEGULA_VEC Vd zero_d() { return {_mm512_setzero_pd(), _mm512_setzero_pd()}; }
TEGULA_VEC Vd load(const double* p) { return {_mm512_loadu_pd(p), _mm512_loadu_pd(p + 8)}; }
TEGULA_VEC void store(double* p, Vd a) {
  _mm512_storeu_pd(p, a.low);
  _mm512_storeu_pd(p + 8, a.high);
}
TEGULA_VEC Vd operator+(Vd a, Vd b) {
  return {_mm512_add_pd(a.low, b.low), _mm512_add_pd(a.high, b.high)};
}
TEGULA_VEC Vd widened(Vf a) {
  return {_mm512_cvtps_pd(_mm512_castps512_ps256(a.v)),
          _mm512_cvtps_pd(_mm512_extractf32x8_ps(a.v, 1))};
}
TEGULA_VEC Vf rounded(Vd a) {
  return {_mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(a.low)),
                             _mm512_cvtpd_ps(a.high), 1)};
}

}  // namespace tegula::kernel::avx512
