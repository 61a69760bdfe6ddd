// Blocks of weights (base/block_format.h) in registers: runs of 32 values as unsigned bytes u, with
// q = u - kZero, and the scales and mins of a block.
#pragma once

#include "tegula/base/block_format.h"
#include "tegula/kernels/cpu/isa/vec.h"

namespace tegula::kernel::TEGULA_ISA_NS {

inline constexpr int kRun = 32;  // values that are unpacked at once

template <BlockFormat F>
struct Blocks {
  using enum BlockFormat;
  static constexpr bool kIsK = F == kQ2_K || F == kQ3_K || F == kQ4_K || F == kQ5_K || F == kQ6_K;
  static constexpr bool kIsIq4 = F == kIQ4_NL || F == kIQ4_XS;
  static constexpr bool kHasMin =
      F == kQ4_1 || F == kQ5_1 || F == kQ2_K || F == kQ4_K || F == kQ5_K;
  static constexpr int kRuns = kIsK || F == kIQ4_XS ? 8 : 1;                      // of a block
  static constexpr int kGroups = F == kQ2_K || F == kQ3_K || F == kQ6_K ? 2 : 1;  // of a run
  static constexpr int kBytes = F == kQ8_0     ? 34
                                : F == kQ4_0   ? 18
                                : F == kQ4_1   ? 20
                                : F == kQ5_0   ? 22
                                : F == kQ5_1   ? 24
                                : F == kQ2_K   ? 84
                                : F == kQ3_K   ? 110
                                : F == kQ4_K   ? 144
                                : F == kQ5_K   ? 176
                                : F == kQ6_K   ? 210
                                : F == kIQ4_NL ? 18
                                               : 136;
  static constexpr int kZero = F == kQ8_0 || kIsIq4 ? 128
                               : F == kQ4_0         ? 8
                               : F == kQ5_0         ? 16
                               : F == kQ3_K         ? 4
                               : F == kQ6_K         ? 32
                                                    : 0;
  // 16 bytes hold the lower bits of a run: the first half of it in their low halves.
  static constexpr bool kIsNibbles = F == kQ4_0 || F == kQ4_1 || F == kQ5_0 || F == kQ5_1;
  // Bits of u.
  static constexpr int kBits = F == kQ8_0 || kIsIq4                     ? 8
                               : F == kQ6_K                             ? 6
                               : F == kQ5_0 || F == kQ5_1 || F == kQ5_K ? 5
                               : F == kQ3_K                             ? 3
                               : F == kQ2_K                             ? 2
                                                                        : 4;
};

// The values that the 4 bits of IQ4 formats stand for, + 128.
inline constexpr uint8_t kIq4Bytes[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                          129, 141, 153, 166, 181, 197, 217, 241};

#if defined(TEGULA_ISA_AVX512) || defined(TEGULA_ISA_AVX2)

struct Bytes {
  __m256i v;
};
TEGULA_VEC float half_at(const uint8_t* p) {
  uint16_t h;
  std::memcpy(&h, p, sizeof h);
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
}
TEGULA_VEC __m256i load32(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
TEGULA_VEC __m256i times32(int byte) { return _mm256_set1_epi8(static_cast<char>(byte)); }
// The low halves of 16 bytes, then the high ones.
TEGULA_VEC __m256i nibbles(const uint8_t* p) {
  const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(x), _mm_srli_epi16(x, 4), 1);
  return _mm256_and_si256(both, times32(15));
}
// The first 16 values of a run of two rows, and the other 16.
struct Halves {
  __m256i first, second;
};
TEGULA_VEC Halves nibbles_of_two(const uint8_t* p, const uint8_t* q) {
  const __m128i* at[2] = {reinterpret_cast<const __m128i*>(p), reinterpret_cast<const __m128i*>(q)};
  const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(at[0])),
                                               _mm_loadu_si128(at[1]), 1);
  return {_mm256_and_si256(both, times32(15)),
          _mm256_and_si256(_mm256_srli_epi16(both, 4), times32(15))};
}
// `mask` of each byte, `shift` up.
TEGULA_VEC __m256i field(__m256i x, int shift, int mask) {
  return _mm256_and_si256(_mm256_srl_epi16(x, _mm_cvtsi32_si128(shift)), times32(mask));
}
// 16 where a bit is set.
TEGULA_VEC __m256i sixteens(const uint8_t* p) {
  int32_t bits;
  std::memcpy(&bits, p, sizeof bits);
  const __m256i each =
      _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i of = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
  const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(bits), each);
  const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, of), of);
  return _mm256_and_si256(set, times32(16));
}
TEGULA_VEC __m256i iq4(__m256i nibble) {
  const __m128i t = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kIq4Bytes));
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(t), nibble);
}
template <int K>
TEGULA_VEC __m256i up(__m256i x) {
  return _mm256_slli_epi16(x, K);
}
TEGULA_VEC __m256i join(__m256i a, __m256i b) { return _mm256_or_si256(a, b); }
TEGULA_VEC __m256i flip(__m256i a) { return _mm256_xor_si256(a, times32(128)); }
TEGULA_VEC Bytes bytes_of(__m256i v) { return {v}; }

#else

// The same, byte by byte.
struct Bytes {
  uint8_t v[kRun];
};
TEGULA_VEC float half_at(const uint8_t* p) {
  f16 h;
  std::memcpy(&h.bits, p, sizeof h.bits);
  return static_cast<float>(h);
}
template <class F>
TEGULA_VEC Bytes each_byte(F byte) {
  Bytes b;
  for (int i = 0; i < kRun; ++i) b.v[i] = static_cast<uint8_t>(byte(i));
  return b;
}
TEGULA_VEC Bytes load32(const uint8_t* p) {
  return each_byte([&](int i) { return p[i]; });
}
TEGULA_VEC Bytes nibbles(const uint8_t* p) {
  return each_byte([&](int i) { return p[i % 16] >> i / 16 * 4 & 15; });
}
TEGULA_VEC Bytes field(const Bytes& x, int shift, int mask) {
  return each_byte([&](int i) { return x.v[i] >> shift & mask; });
}
TEGULA_VEC Bytes sixteens(const uint8_t* p) {
  return each_byte([&](int i) { return (p[i / 8] >> i % 8 & 1) << 4; });
}
TEGULA_VEC Bytes iq4(const Bytes& nibble) {
  return each_byte([&](int i) { return kIq4Bytes[nibble.v[i]]; });
}
template <int K>
TEGULA_VEC Bytes up(const Bytes& x) {
  return each_byte([&](int i) { return x.v[i] << K; });
}
TEGULA_VEC Bytes join(const Bytes& a, const Bytes& b) {
  return each_byte([&](int i) { return a.v[i] | b.v[i]; });
}
TEGULA_VEC Bytes flip(const Bytes& a) {
  return each_byte([&](int i) { return a.v[i] ^ 128; });
}
TEGULA_VEC Bytes bytes_of(const Bytes& v) { return v; }

#endif

// u of run r of a block.
template <BlockFormat F>
TEGULA_VEC Bytes load_run(const uint8_t* block, int r) {
  using enum BlockFormat;
  if constexpr (F == kQ8_0) {
    return bytes_of(flip(load32(block + 2)));
  } else if constexpr (F == kQ4_0 || F == kQ4_1) {
    return bytes_of(nibbles(block + (F == kQ4_0 ? 2 : 4)));
  } else if constexpr (F == kQ5_0 || F == kQ5_1) {
    const uint8_t* high = block + (F == kQ5_0 ? 2 : 4);
    return bytes_of(join(nibbles(high + 4), sixteens(high)));
  } else if constexpr (F == kQ2_K) {
    return bytes_of(field(load32(block + 16 + r / 4 * 32), r % 4 * 2, 3));
  } else if constexpr (F == kQ3_K) {
    return bytes_of(join(field(load32(block + 32 + r / 4 * 32), r % 4 * 2, 3),
                         up<2>(field(load32(block), r, 1))));
  } else if constexpr (F == kQ4_K) {
    return bytes_of(field(load32(block + 16 + r / 2 * 32), r % 2 * 4, 15));
  } else if constexpr (F == kQ5_K) {
    return bytes_of(join(field(load32(block + 48 + r / 2 * 32), r % 2 * 4, 15),
                         up<4>(field(load32(block + 16), r, 1))));
  } else if constexpr (F == kQ6_K) {
    const uint8_t* low = block + r / 4 * 64 + r % 2 * 32;
    return bytes_of(join(field(load32(low), r % 4 / 2 * 4, 15),
                         up<4>(field(load32(block + 128 + r / 4 * 32), r % 4 * 2, 3))));
  } else {
    return bytes_of(iq4(nibbles(block + (F == kIQ4_NL ? 2 : 8 + r * 16))));
  }
}

// scale[g · stride] and min[g · stride] of every group of a block; mins where the format has some.
template <BlockFormat F>
TEGULA_VEC void load_scales(const uint8_t* block, float* scale, float* min, int64_t stride) {
  using enum BlockFormat;
  if constexpr (F == kQ4_K || F == kQ5_K) {
    const float d = half_at(block), d_min = half_at(block + 2);
    const uint8_t* s = block + 4;
    for (int i = 0; i < 4; ++i) {
      scale[i * stride] = d * static_cast<float>(s[i] & 63);
      min[i * stride] = -(d_min * static_cast<float>(s[4 + i] & 63));
      scale[(4 + i) * stride] = d * static_cast<float>((s[8 + i] & 15) | s[i] >> 6 << 4);
      min[(4 + i) * stride] = -(d_min * static_cast<float>(s[8 + i] >> 4 | s[4 + i] >> 6 << 4));
    }
  } else if constexpr (F == kQ6_K) {
    const float d = half_at(block + 208);
    for (int i = 0; i < 16; ++i)
      scale[i * stride] = d * static_cast<float>(static_cast<int8_t>(block[192 + i]));
  } else if constexpr (F == kIQ4_XS) {
    const float d = half_at(block);
    for (int i = 0; i < 8; ++i) {
      const int low = block[4 + i / 2] >> i % 2 * 4 & 15;
      const int s = low | (block[2 + i / 4] >> i % 4 * 2 & 3) << 4;
      scale[i * stride] = d * static_cast<float>(s - 32);
    }
  } else if constexpr (F == kQ2_K) {
    const float d = half_at(block + 80), d_min = half_at(block + 82);
    for (int i = 0; i < 16; ++i) {
      scale[i * stride] = d * static_cast<float>(block[i] & 15);
      min[i * stride] = -(d_min * static_cast<float>(block[i] >> 4));
    }
  } else if constexpr (F == kQ3_K) {
    const uint8_t* low = block + 96;
    const float d = half_at(block + 108);
    for (int i = 0; i < 16; ++i) {
      const int s = (low[i % 8] >> i / 8 * 4 & 15) | (low[8 + i % 4] >> i / 4 * 2 & 3) << 4;
      scale[i * stride] = d * static_cast<float>(s - 32);
    }
  } else {
    scale[0] = half_at(block);
    if constexpr (Blocks<F>::kHasMin) min[0] = half_at(block + 2);
  }
}

#if defined(TEGULA_ISA_AVX512) || defined(TEGULA_ISA_AVX2)
// u of a block of row p in the lower lanes, of row q in the upper ones.
template <BlockFormat F>
TEGULA_VEC Halves load_halves(const uint8_t* p, const uint8_t* q) {
  static_assert(Blocks<F>::kIsNibbles);
  constexpr int kLow = Blocks<F>::kBytes - 16;
  Halves u = nibbles_of_two(p + kLow, q + kLow);
  if constexpr (Blocks<F>::kBits == 5) {
    const __m256i high_p = sixteens(p + kLow - 4), high_q = sixteens(q + kLow - 4);
    u.first = join(u.first, _mm256_permute2x128_si256(high_p, high_q, 0x20));
    u.second = join(u.second, _mm256_permute2x128_si256(high_p, high_q, 0x31));
  }
  return u;
}

// The 4 bytes at p of each of eight rows. Through memory, eight small stores would hold up one
// large load.
struct Dwords {
  __m128i first, last;  // of rows 0 to 3, 4 to 7
};
TEGULA_VEC Dwords dwords_at(const uint8_t* const (&w)[8], int64_t at) {
  int32_t v[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) std::memcpy(&v[i], w[i] + at, sizeof v[i]);
  return {_mm_setr_epi32(v[0], v[1], v[2], v[3]), _mm_setr_epi32(v[4], v[5], v[6], v[7])};
}
TEGULA_VEC __m256i eight(const Dwords& v) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(v.first), v.last, 1);
}
TEGULA_VEC __m256 low_halves(const Dwords& v) {
  const __m128i low = _mm_set1_epi32(0xffff);
  return _mm256_cvtph_ps(_mm_packus_epi32(_mm_and_si128(v.first, low), _mm_and_si128(v.last, low)));
}
TEGULA_VEC __m256 high_halves(const Dwords& v) {
  return _mm256_cvtph_ps(_mm_packus_epi32(_mm_srli_epi32(v.first, 16), _mm_srli_epi32(v.last, 16)));
}
// by · byte i of each lane.
template <bool kIsSigned = false>
TEGULA_VEC __m256 scaled_byte(__m256i v, int i, __m256 by) {
  v = _mm256_slli_epi32(v, 24 - 8 * i);
  v = kIsSigned ? _mm256_srai_epi32(v, 24) : _mm256_srli_epi32(v, 24);
  return _mm256_mul_ps(_mm256_cvtepi32_ps(v), by);
}

// load_scales of a block of eight rows, a lane a row.
template <BlockFormat F>
TEGULA_VEC void load_scales_of_eight(const uint8_t* const (&w)[8], int64_t at,
                                     __m256 (&scale)[Blocks<F>::kRuns * Blocks<F>::kGroups],
                                     __m256 (&min)[Blocks<F>::kRuns * Blocks<F>::kGroups]) {
  using enum BlockFormat;
  using B = Blocks<F>;
  if constexpr (B::kRuns == 1) {
    const Dwords v = dwords_at(w, at);
    scale[0] = low_halves(v);
    if constexpr (B::kHasMin) min[0] = high_halves(v);
  } else if constexpr (F == kQ4_K || F == kQ5_K) {
    const Dwords both = dwords_at(w, at);
    const __m256 d = low_halves(both), d_min = -high_halves(both);
    const __m256i a = eight(dwords_at(w, at + 4)), b = eight(dwords_at(w, at + 8)),
                  c = eight(dwords_at(w, at + 12));
    const __m256i s[2] = {field(a, 0, 63), join(field(c, 0, 15), up<4>(field(a, 6, 3)))},
                  m[2] = {field(b, 0, 63), join(field(c, 4, 15), up<4>(field(b, 6, 3)))};
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      scale[i] = scaled_byte(s[i / 4], i % 4, d);
      min[i] = scaled_byte(m[i / 4], i % 4, d_min);
    }
  } else if constexpr (F == kQ6_K) {
    const __m256 d = high_halves(dwords_at(w, at + 206));  // the scales' last two bytes, and d
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const __m256i s = eight(dwords_at(w, at + 192 + 4 * i));
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) scale[4 * i + j] = scaled_byte<true>(s, j, d);
    }
  } else {
    for (int i = 0; i < 8; ++i)
      load_scales<F>(w[i] + at, reinterpret_cast<float*>(scale) + i,
                     reinterpret_cast<float*>(min) + i, 8);
  }
}

#endif

}  // namespace tegula::kernel::TEGULA_ISA_NS
