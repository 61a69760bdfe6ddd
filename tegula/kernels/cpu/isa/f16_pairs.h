// Pairs of f16, two neighbours in a float's place, the first in its lower half: so they are
// transposed in half the shuffles, and widened then.
#pragma once

#include "tegula/kernels/cpu/isa/vec.h"

namespace tegula::kernel::TEGULA_ISA_NS {

// r[0] are the lower halves, r[1] the upper ones.
#if defined(TEGULA_ISA_AVX512)
TEGULA_VEC void widen_f16_pairs(Vf pairs, Vf (&r)[2]) {
  const __m512i p = _mm512_castps_si512(pairs.v);
  r[0].v = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(p));
  r[1].v = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(p, 16)));
}
#elif defined(TEGULA_ISA_AVX2)
TEGULA_VEC void widen_f16_pairs(Vf pairs, Vf (&r)[2]) {
  const __m256i lower_then_upper = _mm256_setr_epi8(         //
      0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15,  //
      0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
  const __m256i of_lanes = _mm256_shuffle_epi8(_mm256_castps_si256(pairs.v), lower_then_upper);
  const __m256i halves = _mm256_permute4x64_epi64(of_lanes, 0xd8);
  r[0].v = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
  r[1].v = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
}
#else
TEGULA_VEC_LONG void widen_f16_pairs(Vf pairs, Vf (&r)[2]) {
  float at[kLanes], lower[kLanes], upper[kLanes];
  f16 half[2 * kLanes];
  store(at, pairs);
  std::memcpy(half, at, sizeof half);
  for (int i = 0; i < kLanes; ++i) {
    lower[i] = static_cast<float>(half[2 * i]);
    upper[i] = static_cast<float>(half[2 * i + 1]);
  }
  r[0] = load(lower), r[1] = load(upper);
}
#endif

}  // namespace tegula::kernel::TEGULA_ISA_NS
