// Products of 8-bit integers, four neighbouring k at a time ("quads"): weights as unsigned bytes
// (q + 128, or q + 8 where they have four bits) by signed ones; the offset times the sum of the
// signed ones is taken off apart. Sums are exact modulo 2^32.
#pragma once

#include "tegula/kernels/cpu/isa/vec.h"

namespace tegula::kernel::TEGULA_ISA_NS {

inline constexpr int kQuadColumns = 4 * kLanes;  // of four vectors of quads

#if defined(TEGULA_ISA_AVX512)
TEGULA_VEC Vi madd16(Vi a, Vi b) { return {_mm512_madd_epi16(a.v, b.v)}; }
// In each 16 bytes the lower, or the upper, half of either, in turn.
TEGULA_VEC Vi low8(Vi a, Vi b) { return {_mm512_unpacklo_epi8(a.v, b.v)}; }
TEGULA_VEC Vi high8(Vi a, Vi b) { return {_mm512_unpackhi_epi8(a.v, b.v)}; }
TEGULA_VEC Vi low16(Vi a, Vi b) { return {_mm512_unpacklo_epi16(a.v, b.v)}; }
TEGULA_VEC Vi high16(Vi a, Vi b) { return {_mm512_unpackhi_epi16(a.v, b.v)}; }
// VPDPBUSD as text, because this source is compiled for processors that lack it, too.
TEGULA_VEC Vi dot_bytes(Vi sum, Vi u8, Vi s8) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum.v) : "v"(u8.v), "v"(s8.v));
  return sum;
}
// Sums of interleaved columns, to their order in memory.
TEGULA_VEC void unpermute(Vi (&s)[4]) {
  const __m512i a = _mm512_shuffle_i32x4(s[0].v, s[1].v, 0x44),
                b = _mm512_shuffle_i32x4(s[2].v, s[3].v, 0x44),
                c = _mm512_shuffle_i32x4(s[0].v, s[1].v, 0xee),
                d = _mm512_shuffle_i32x4(s[2].v, s[3].v, 0xee);
  s[0].v = _mm512_shuffle_i32x4(a, b, 0x88), s[1].v = _mm512_shuffle_i32x4(a, b, 0xdd);
  s[2].v = _mm512_shuffle_i32x4(c, d, 0x88), s[3].v = _mm512_shuffle_i32x4(c, d, 0xdd);
}
#elif defined(TEGULA_ISA_AVX2)
TEGULA_VEC Vi madd16(Vi a, Vi b) { return {_mm256_madd_epi16(a.v, b.v)}; }
TEGULA_VEC Vi low8(Vi a, Vi b) { return {_mm256_unpacklo_epi8(a.v, b.v)}; }
TEGULA_VEC Vi high8(Vi a, Vi b) { return {_mm256_unpackhi_epi8(a.v, b.v)}; }
TEGULA_VEC Vi low16(Vi a, Vi b) { return {_mm256_unpacklo_epi16(a.v, b.v)}; }
TEGULA_VEC Vi high16(Vi a, Vi b) { return {_mm256_unpackhi_epi16(a.v, b.v)}; }
TEGULA_VEC void unpermute(Vi (&s)[4]) {
  const Vi t[4] = {s[0], s[1], s[2], s[3]};
  s[0].v = _mm256_permute2x128_si256(t[0].v, t[1].v, 0x20);
  s[1].v = _mm256_permute2x128_si256(t[2].v, t[3].v, 0x20);
  s[2].v = _mm256_permute2x128_si256(t[0].v, t[1].v, 0x31);
  s[3].v = _mm256_permute2x128_si256(t[2].v, t[3].v, 0x31);
}
#else
TEGULA_VEC Vi madd16(Vi a, Vi b) {  // of numbers that are not both -32768
  const auto product = [](uint32_t x, uint32_t y) {
    return static_cast<int32_t>(static_cast<int16_t>(x)) * static_cast<int16_t>(y);
  };
  int32_t x[kLanes], y[kLanes], sum[kLanes];
  storei(x, a), storei(y, b);
  for (int i = 0; i < kLanes; ++i) {
    const auto u = static_cast<uint32_t>(x[i]), w = static_cast<uint32_t>(y[i]);
    sum[i] = product(u & 0xffff, w & 0xffff) + product(u >> 16, w >> 16);
  }
  return loadi(sum);
}
TEGULA_VEC void interleave(const Vi (&row)[4], Vi (&b)[4]) {
  uint8_t from[4][kQuadColumns], to[kQuadColumns][4];
  std::memcpy(from, row, sizeof from);
  for (int j = 0; j < kQuadColumns; ++j)
    for (int r = 0; r < 4; ++r) to[j][r] = from[r][j];
  std::memcpy(b, to, sizeof to);
}
TEGULA_VEC void unpermute(Vi (&)[4]) {}
#endif

#if defined(TEGULA_ISA_AVX512) || defined(TEGULA_ISA_AVX2)
// Four rows of bytes to quads. Blocks of four columns come out in the order of unpermute.
TEGULA_VEC void interleave(const Vi (&row)[4], Vi (&b)[4]) {
  const Vi l01 = low8(row[0], row[1]), h01 = high8(row[0], row[1]);
  const Vi l23 = low8(row[2], row[3]), h23 = high8(row[2], row[3]);
  b[0] = low16(l01, l23), b[1] = high16(l01, l23);
  b[2] = low16(h01, h23), b[3] = high16(h01, h23);
}
#endif

// kQuadColumns bytes at p.
TEGULA_VEC Vi load_bytes(const uint8_t* p) {
  int32_t t[kLanes];
  std::memcpy(t, p, sizeof t);
  return loadi(t);
}

// Quads of kQuadColumns columns: of four rows of 8 bits, or of two rows of bytes of four.
template <bool kFour>
TEGULA_VEC void load_quads(const uint8_t* const* row, int64_t j, Vi (&b)[4]) {
  Vi r[4];
  if constexpr (kFour) {
    const Vi low = set1i(0x0f0f0f0f), x = load_bytes(row[0] + j), y = load_bytes(row[1] + j);
    r[0] = x & low, r[1] = shr<4>(x) & low, r[2] = y & low, r[3] = shr<4>(y) & low;
  } else {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) r[i] = load_bytes(row[i] + j) ^ set1i(INT32_MIN + 0x808080);
  }
  interleave(r, b);
}

// The signed side of a quad: VPDPBUSD's four bytes, or the even k and the odd ones as 16-bit pairs.
template <bool kVnni>
struct QuadDot {
  static constexpr int kBytes = kVnni ? 4 : 8;

  static void pack(const int8_t (&x)[4], char* dst) {
    if constexpr (kVnni) {
      std::memcpy(dst, x, 4);
    } else {
      const int16_t pairs[4] = {x[0], x[2], x[1], x[3]};
      std::memcpy(dst, pairs, 8);
    }
  }

  // acc[i] += quads b by row i's at a.
  template <int kM>
  TEGULA_VEC void add(Vi (&acc)[kM][4], const Vi (&b)[4], const char* a, int64_t a_row) {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      const Vi even = b[v] & set1i(0x00ff00ff), odd = shr<8>(b[v]) & set1i(0x00ff00ff);
#pragma GCC unroll 8
      for (int i = 0; i < kM; ++i) {
        int32_t x[2];
        std::memcpy(x, a + i * a_row, kBytes);
#if defined(TEGULA_ISA_AVX512)
        if constexpr (kVnni) {
          acc[i][v] = dot_bytes(acc[i][v], b[v], set1i(x[0]));
          continue;
        }
#endif
        acc[i][v] = acc[i][v] + (madd16(even, set1i(x[0])) + madd16(odd, set1i(x[1])));
      }
    }
  }
};

}  // namespace tegula::kernel::TEGULA_ISA_NS
