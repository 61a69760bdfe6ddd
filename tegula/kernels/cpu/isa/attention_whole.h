// Attention's forward where a whole strip of rows sees all 64 keys of a block and scores are plain.
// The chains are those of the other tiles; nothing is asked per tile, and scores' maxima are taken
// while they are in registers.
#pragma once

#include "tegula/kernels/cpu/isa/attention_rows.h"

namespace tegula::kernel::TEGULA_ISA_NS {

using WholeTile = Vf[kTileM][kTileNv];

// acc = fma(a_k, b_k, acc) for n k, unrolled by kUnroll, which divides n; row i of a is i·kRow
// floats away, its k kStep.
template <int64_t kRow, int64_t kStep, int kUnroll>
TEGULA_VEC void add_products(WholeTile& acc, const float* a, const float* b, int64_t n) {
  for (; n > 0; n -= kUnroll) {
#pragma GCC unroll 4
    for (int u = 0; u < kUnroll; ++u, a += kStep, b += kTileN) {
      Vf bv[kTileNv];
#pragma GCC unroll 2
      for (int v = 0; v < kTileNv; ++v) bv[v] = load(b + v * kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < kTileM; ++i) {
        const Vf x = broadcast(a + i * kRow);
#pragma GCC unroll 2
        for (int v = 0; v < kTileNv; ++v) acc[i][v] = fma(x, bv[v], acc[i][v]);
      }
    }
  }
}

// s[i][0, kTileN) of queries q [d][kTileM] and keys k [d][kTileN]; top[i] = max(top[i], they) by
// lane, or with kIsFirst just they.
template <bool kIsFirst>
static void score_tile(const float* q, const float* k, int64_t d, float* s, float* top) {
  WholeTile acc;
#pragma GCC unroll 16
  for (auto& row : acc)
#pragma GCC unroll 2
    for (Vf& x : row) x = zero();
  add_products<1, kTileM, 1>(acc, q, k, d);
#pragma GCC unroll 16
  for (int i = 0; i < kTileM; ++i) {
    Vf most = acc[i][0];
#pragma GCC unroll 2
    for (int v = 1; v < kTileNv; ++v) most = max(most, acc[i][v]);
    store(top + i * kLanes, kIsFirst ? most : max(load(top + i * kLanes), most));
#pragma GCC unroll 2
    for (int v = 0; v < kTileNv; ++v) store(s + i * kKeyBlock + v * kLanes, acc[i][v]);
  }
}

// Scores [kTileM][64] become weights, p = 2^((s - shift)·log2), and l += p by lane. Four vectors at
// a time, or a chain would wait for itself.
static void weigh_whole(float* s, const float* shift, float (*l)[16], float log2) {
  constexpr int kAtOnce = 4;
  for (int i = 0; i < kTileM; ++i, s += kKeyBlock) {
    Row16 sum = load16(l[i]);
    const Vf m = broadcast(shift + i);
#pragma GCC unroll 2
    for (int g = 0; g < kKeyBlock; g += kAtOnce * kLanes) {
      Vf p[kAtOnce];
#pragma GCC unroll 4
      for (int v = 0; v < kAtOnce; ++v) p[v] = (load(s + g + v * kLanes) - m) * set1(log2);
      exp2_weights(p);
#pragma GCC unroll 4
      for (int v = 0; v < kAtOnce; ++v) {
        store(s + g + v * kLanes, p[v]);
        sum.v[v % Row16::kRegs] = sum.v[v % Row16::kRegs] + p[v];
      }
    }
    store16_n(l[i], sum, 16);
  }
}

// o [kTileM][kTileN] goes on by weights p [kTileM][64] times values [64][kTileN].
static void add_values(const float* p, const float* values, float* o) {
  WholeTile acc;
#pragma GCC unroll 16
  for (int i = 0; i < kTileM; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < kTileNv; ++v) acc[i][v] = load(o + i * kTileN + v * kLanes);
  add_products<kKeyBlock, 1, 4>(acc, p, values, kKeyBlock);
#pragma GCC unroll 16
  for (int i = 0; i < kTileM; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < kTileNv; ++v) store(o + i * kTileN + v * kLanes, acc[i][v]);
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
