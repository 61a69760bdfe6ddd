// Packing pairs of bf16 (pairs.h).
#pragma once

#include "tegula/kernels/cpu/isa/pack.h"
#include "tegula/kernels/cpu/isa/pairs.h"

namespace tegula::kernel::TEGULA_ISA_NS {

// Two neighbouring k as they lie in memory, for the templates of pack.h: what is "loaded" is a
// pair.
struct Pair {
  bf16 first, second;
};
TEGULA_VEC Vf load(const Pair* p) { return swap_halves(load(reinterpret_cast<const float*>(p))); }
TEGULA_VEC Vf load_n(const Pair* p, int n) {
  return swap_halves(load_n(reinterpret_cast<const float*>(p), n));
}
// The pairs of two rows of k.
TEGULA_VEC Vf zip_pairs(Vf first, Vf second) {
  return as_float(bits(first) | bits(upper_halves(second)));
}

// Panels of `width` lanes that lie side by side, rows of k `half` apart, pairs 2·half.
template <int kVectors>
static void pack_pair_rows(const bf16* src, int width, int64_t half, int64_t n_k, float* dst,
                           int ld) {
  const int tail = width - (kVectors - 1) * kLanes;
  for (int64_t k = 0; k < n_k; ++k, src += 2 * half, dst += ld) {
    __builtin_prefetch(src + 12 * half), __builtin_prefetch(src + 13 * half);
#pragma GCC unroll unrolled(2)
    for (int v = 0; v < kVectors; ++v) {
      const bf16* at = src + v * kLanes;
      const int n = v < kVectors - 1 ? kLanes : tail;
      store(dst + v * kLanes, n == kLanes ? zip_pairs(load(at), load(at + half))
                                          : zip_pairs(load_n(at, n), load_n(at + half, n)));
    }
  }
}
// As pack_strips.
template <int kVectors, int kStrips>
static void pack_pair_strips(const bf16* src, int64_t half, int64_t n_k, float* dst,
                             int64_t next_strip) {
  constexpr int kWidth = kVectors * kLanes, kLine = 32, kAhead = 8;  // rows
  for (int64_t k = 0; k < n_k; ++k, src += 2 * half, dst += kWidth) {
#pragma GCC unroll unrolled(8)
    for (int j = 0; j < kStrips * kWidth; j += kLine)
      __builtin_prefetch(src + kAhead * half + j),
          __builtin_prefetch(src + (kAhead + 1) * half + j);
#pragma GCC unroll unrolled(8)
    for (int s = 0; s < kStrips; ++s)
#pragma GCC unroll unrolled(2)
      for (int v = 0; v < kVectors; ++v) {
        const bf16* at = src + s * kWidth + v * kLanes;
        store(dst + s * next_strip + v * kLanes, zip_pairs(load(at), load(at + half)));
      }
  }
}

// The panel of lanes [first, first + width) of `lanes`, pairs [k0, k0 + n_k); `half` between two k:
// 1, and lanes even elements apart, or lanes side by side.
static inline void pack_pairs(const bf16* src, const Loops& lanes, int64_t half, Operand operand,
                              int64_t first, int width, int64_t k0, int64_t n_k, float* dst,
                              int ld) {
  if (n_k == 0) return;
  int64_t lane[32];
  lanes.offsets(first, width, operand, lane);
  src += 2 * k0 * half;
  if (half == 1) {
    for (int j = 0; j < width; ++j) lane[j] /= 2;
    return pack_transposed(
        PanelArgs<Pair>{reinterpret_cast<const Pair*>(src), lane, width, 1, n_k, dst, ld});
  }
  src += lane[0];
  width <= kLanes ? pack_pair_rows<1>(src, width, half, n_k, dst, ld)
                  : pack_pair_rows<2>(src, width, half, n_k, dst, ld);
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
