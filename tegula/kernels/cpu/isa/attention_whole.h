// What attention's forward and backward do where a whole strip of rows sees all 64 keys of a block
// and scores are plain. The chains are those of the other tiles; nothing is asked per tile, and
// exponentials go four at a time, or a chain would wait for itself.
#pragma once

#include "tegula/kernels/cpu/isa/attention_rows.h"

namespace tegula::kernel::TEGULA_ISA_NS {

// Functions of their own: inlined, accumulators would live in memory.
#define TEGULA_APART __attribute__((noinline, unused)) static

using WholeTile = Vf[kTileM][kTileNv];

// acc = fma(a_k, b_k, acc) for n k, unrolled by kUnroll, which divides n; row i of a is i·kRow
// floats away, its k kStep. On AVX-512 eight of 14 rows are broadcast by the products themselves.
template <int64_t kRow, int64_t kStep, int kUnroll>
TEGULA_VEC void add_products(WholeTile& acc, const float* a, const float* b, int64_t n) {
  const float* again = again_at(a);
  for (; n > 0; n -= kUnroll) {
#pragma GCC unroll 4
    for (int u = 0; u < kUnroll; ++u, a += kStep, again += kStep, b += kTileN) {
      Vf bv[kTileNv];
#pragma GCC unroll 2
      for (int v = 0; v < kTileNv; ++v) bv[v] = load(b + v * kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < kTileM; ++i) {
        const Vf x = broadcast(a + i * kRow);
        const bool twice = kTileM == 14 && i % 7 < 4;
#pragma GCC unroll 2
        for (int v = 0; v < kTileNv; ++v)
          acc[i][v] = fma(v > 0 && twice ? broadcast(again + i * kRow) : x, bv[v], acc[i][v]);
      }
    }
  }
}

TEGULA_VEC void add_strips(WholeTile& acc, const float* a, const float* b, int64_t k) {
#pragma GCC unroll 16
  for (auto& row : acc)
#pragma GCC unroll 2
    for (Vf& x : row) x = zero();
  add_products<1, kTileM, 1>(acc, a, b, k);
}
TEGULA_VEC void store_tile(const WholeTile& acc, float* dst, int64_t stride) {
#pragma GCC unroll 16
  for (int i = 0; i < kTileM; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < kTileNv; ++v) store(dst + i * stride + v * kLanes, acc[i][v]);
}

// dst[i][0, kTileN) of a strip of rows [k][kTileM] and one of keys or values [k][kTileN].
TEGULA_APART void multiply_strips(const float* a, const float* b, int64_t k, float* dst) {
  WholeTile acc;
  add_strips(acc, a, b, k);
  store_tile(acc, dst, kKeyBlock);
}
// dst[i][0, 64), of a whole block.
static inline void multiply_whole(const float* a, const float* b, int64_t k, float* dst) {
  for (int64_t j = 0; j < kKeyBlock; j += kTileN) multiply_strips(a, b + j * k, k, dst + j);
}

inline constexpr int kWeighedAtOnce = 4;

// Scores [kTileM][64], from row `first`, become weights, p = 2^((s - shift)·log2), and l += p by
// lane. Returns the first row whose weights are too large, or kTileM: with that row's l as it was,
// its scores perhaps lost.
TEGULA_APART int weigh_whole(float* s, const float* shift, float (*l)[16], float log2, int first) {
  for (int i = first; i < kTileM; ++i) {
    float* at = s + i * kKeyBlock;
    const Vf m = broadcast(shift + i);
    Row16 sum;
#pragma GCC unroll 2
    for (int g = 0; g < kKeyBlock; g += kWeighedAtOnce * kLanes) {
      Vf p[kWeighedAtOnce];
#pragma GCC unroll 4
      for (int v = 0; v < kWeighedAtOnce; ++v) p[v] = (load(at + g + v * kLanes) - m) * set1(log2);
      exp2_weights(p);
#pragma GCC unroll 4
      for (int v = 0; v < kWeighedAtOnce; ++v) {
        store(at + g + v * kLanes, p[v]);
        Vf& part = sum.v[v % Row16::kRegs];
        part = g == 0 && v < Row16::kRegs ? p[v] : part + p[v];
      }
    }
    if (exceeds(sum, kMostWeight)) [[unlikely]]
      return i;
    store16_n(l[i], load16(l[i]) + sum, 16);
  }
  return kTileM;
}

// The backward's: products q·k in p become weights 2^((p·scale - lse)·log2(e)), products do·v in ds
// gradients of scores, weight·(ds - delta).
TEGULA_APART void weigh_gradients_whole(float* p, float* ds, const float* lse, const float* delta,
                                        float scale) {
  for (int i = 0; i < kTileM; ++i) {
    const Vf minus_lse = -broadcast(lse + i), row_delta = broadcast(delta + i);
    for (int g = 0; g < kKeyBlock; g += kWeighedAtOnce * kLanes) {
      Vf weight[kWeighedAtOnce];
#pragma GCC unroll 4
      for (int v = 0; v < kWeighedAtOnce; ++v)
        weight[v] = fma(load(p + v * kLanes), set1(scale), minus_lse) * set1(kLog2E);
      exp2_weights(weight);
#pragma GCC unroll 4
      for (int v = 0; v < kWeighedAtOnce; ++v) {
        store(p + v * kLanes, weight[v]);
        store(ds + v * kLanes, weight[v] * (load(ds + v * kLanes) - row_delta));
      }
      p += kWeighedAtOnce * kLanes, ds += kWeighedAtOnce * kLanes;
    }
  }
}

static inline bool is_whole_tile(const TileArgs& t) { return t.rows == kTileM && t.cols == kTileN; }

// acc [kTileM][kTileN] goes on by n products; see add_products.
template <int64_t kRow, int64_t kStep, int kUnroll>
TEGULA_APART void add_whole(const float* a, const float* b, int64_t n, float* acc) {
  WholeTile sums;
#pragma GCC unroll 16
  for (int i = 0; i < kTileM; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < kTileNv; ++v) sums[i][v] = load(acc + i * kTileN + v * kLanes);
  add_products<kRow, kStep, kUnroll>(sums, a, b, n);
  store_tile(sums, acc, kTileN);
}
// By rows [kTileM][64] times 64 rows of values.
static inline void add_values(const float* p, const float* values, float* acc) {
  add_whole<kKeyBlock, 1, 4>(p, values, kKeyBlock, acc);
}
static inline void add_keys(const float* p, const float* values, int64_t n, float* acc) {
  add_whole<kKeyBlock, 1, 1>(p, values, n, acc);
}
// The same for n blocks: [n][kTileM][64] times values `next` floats apart.
TEGULA_APART void add_blocks(const float* p, const float* values, int64_t n, int64_t next,
                             float* acc) {
  WholeTile sums;
#pragma GCC unroll 16
  for (int i = 0; i < kTileM; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < kTileNv; ++v) sums[i][v] = load(acc + i * kTileN + v * kLanes);
  for (; n > 0; --n, p += kTileM * kKeyBlock, values += next)
    add_products<kKeyBlock, 1, 4>(sums, p, values, kKeyBlock);
  store_tile(sums, acc, kTileN);
}
// By kTileM columns of n rows of 64, times n rows of queries.
static inline void add_queries(const float* p, const float* queries, int64_t n, float* acc) {
  add_whole<1, kKeyBlock, 1>(p, queries, n, acc);
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
