// Blocks of 32 × 32: four tiles of f32 sums, or two of bf16, packed as a or as b.
#pragma once

#include "tegula/kernels/cpu/isa/amx_pack.h"

namespace tegula::kernel::TEGULA_ISA_NS {

inline constexpr int64_t kBf16Block = 2 * kTileBytes;  // 32 × 32 bf16: two tiles
inline constexpr int kF32Block = kStrip * kStrip;      // 32 × 32 f32, in floats

// 32 numbers to bf16.
TEGULA_VEC void store_bf16(void* dst, const Row16& lo, const Row16& hi) {
#if defined(__AVX512BF16__)
  _mm512_storeu_si512(dst, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(hi.v[0].v, lo.v[0].v)));
#else
  auto* p = static_cast<bf16*>(dst);
  store16_n(p, lo, 16), store16_n(p + 16, hi, 16);
#endif
}

// sum plus 32 numbers as they are stored: lane j takes the one at 2j + 1, then that at 2j (as
// VDPBF16PS does, which sums them without widening).
TEGULA_VEC Row16 add_bf16(const Row16& sum, const void* stored) {
#if defined(__AVX512BF16__)
  const auto ones = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3f803f80));
  const auto pairs = reinterpret_cast<__m512bh>(_mm512_loadu_si512(stored));
  return {{{_mm512_dpbf16_ps(sum.v[0].v, ones, pairs)}}};
#else
  return map16([&](int i) {
    const Vi pairs = bits(load(static_cast<const float*>(stored) + i * kLanes));
    return sum.v[i] + as_float(pairs & set1i(INT32_MIN >> 15)) + as_float(shl<16>(pairs));
  });
#endif
}

// Tiles of lanes [lane0, lane0 + n) of one operand, zeros to 32.
static inline void pack_block(const bf16* src, const Loops& lanes, const Loops& ks, int64_t lane0,
                              int64_t n, int64_t k0, int64_t n_k, TileForm form, char* dst,
                              int64_t k_bytes = kBf16Block) {
  if (n <= kTile)
    for (int64_t k = 0; k < n_k; k += kTilePairs)
      std::memset(dst + k / kTilePairs * k_bytes + kTileBytes, 0, kTileBytes);
  pack_tiles(src, lanes, ks, kA, lane0, static_cast<int>(n), k0, n_k, form, dst, k_bytes);
}

class ByteScratch {
 public:
  explicit ByteScratch(char* at) : at_(at) {}
  char* bf16_blocks(int64_t n) { return take(n * kBf16Block); }
  float* f32_blocks(int64_t n) { return reinterpret_cast<float*>(take(n * 4 * kF32Block)); }

 private:
  char* take(int64_t bytes) {
    char* p = at_;
    at_ += bytes;
    return p;
  }
  char* at_;
};

}  // namespace tegula::kernel::TEGULA_ISA_NS
