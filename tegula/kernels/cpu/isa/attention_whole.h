// Loops of attention's forward and backward where a whole strip of rows sees all 64 keys of a block
// and scores are plain. The chains are those of the other tiles; nothing is asked per tile, and
// exponentials go four at a time, or a chain would wait for itself.
#pragma once

#include <initializer_list>
#include <type_traits>

#include "tegula/kernels/cpu/isa/attention_rows.h"
#include "tegula/kernels/cpu/isa/pack_pairs.h"

namespace tegula::kernel::TEGULA_ISA_NS {

// Functions of their own: inlined, accumulators would live in memory.
#define TEGULA_APART __attribute__((noinline, unused)) static

// A tile of kM rows and kNv vectors of columns.
template <int kM = kTileM, int kNv = kTileNv>
using WholeTile = Vf[kM][kNv];

// acc = fma(a_k, b_k, acc) for n k, unrolled by kUnroll, which divides n; row i of a is i·kRow
// floats away, its k kStep. kFetches: with each k a line from `fetched` on. On AVX-512 eight of 14
// rows are broadcast by the products themselves. kPairs: k counts pairs (pairs.h).
template <int64_t kRow, int64_t kStep, int kUnroll, bool kFetches = false, bool kPairs = false,
          int kM, int kNv>
TEGULA_VEC void add_products(Vf (&acc)[kM][kNv], const float* a, const float* b, int64_t n,
                             [[maybe_unused]] const float* fetched = nullptr) {
  const float* again = again_at(a);
  for (; n > 0; n -= kUnroll) {
#pragma GCC unroll unrolled(4)
    for (int u = 0; u < kUnroll; ++u, a += kStep, again += kStep, b += kTileN) {
      if constexpr (kFetches) __builtin_prefetch(fetched, 1), fetched += 16;
      Vf bv[kNv];
#pragma GCC unroll unrolled(2)
      for (int v = 0; v < kNv; ++v) bv[v] = load(b + v * kLanes);
#pragma GCC unroll unrolled(16)
      for (int i = 0; i < kM; ++i) {
        const Vf x = broadcast(a + i * kRow);
        const bool twice = kTileM == 14 && !kPairs && i % 7 < 4;
#pragma GCC unroll unrolled(2)
        for (int v = 0; v < kNv; ++v) {
          const Vf y = v > 0 && twice ? broadcast(again + i * kRow) : x;
          acc[i][v] = kPairs ? dot_pairs(acc[i][v], y, bv[v]) : fma(y, bv[v], acc[i][v]);
        }
      }
    }
  }
}

template <int kM, int kNv>
TEGULA_VEC void store_tile(const Vf (&acc)[kM][kNv], float* dst, int64_t stride) {
#pragma GCC unroll unrolled(16)
  for (int i = 0; i < kM; ++i)
#pragma GCC unroll unrolled(2)
    for (int v = 0; v < kNv; ++v) store(dst + i * stride + v * kLanes, acc[i][v]);
}
// From sums [kM][kTileN].
template <int kM>
TEGULA_VEC void load_tile(Vf (&acc)[kM][kTileNv], const float* src) {
#pragma GCC unroll unrolled(16)
  for (int i = 0; i < kM; ++i)
#pragma GCC unroll unrolled(2)
    for (int v = 0; v < kTileNv; ++v) acc[i][v] = load(src + i * kTileN + v * kLanes);
}

// dst[i][0, kTileN) of a strip of rows [k][kTileM] and one of keys or values [k][kTileN].
template <int kNv = kTileNv, bool kPairs = false>
TEGULA_APART void multiply_strips(const float* a, const float* b, int64_t k, float* dst) {
  WholeTile<kTileM, kNv> acc;
#pragma GCC unroll unrolled(16)
  for (auto& row : acc)
#pragma GCC unroll unrolled(2)
    for (Vf& x : row) x = zero();
  add_products<1, kTileM, 1, false, kPairs>(acc, a, b, k);
  store_tile(acc, dst, kKeyBlock);
}
// dst[i][0, cols), or more, of some rows [k][rows]; half a strip, if that will do. (Sizes are
// compared one by one: as two ints of a struct, read as one word, they waited for all stores.)
template <bool kPairs = false>
static inline void multiply_columns(const float* a, const float* b, int64_t k, int rows, int cols,
                                    float* dst) {
  if (rows != kTileM)
    multiply_tile({a, rows, Lies::kPanel, b, k, rows, cols, kPairs}, dst, kKeyBlock);
  else
    cols <= kLanes ? multiply_strips<1, kPairs>(a, b, k, dst)
                   : multiply_strips<kTileNv, kPairs>(a, b, k, dst);
}
// dst[i][0, 64), of a whole block.
template <bool kPairs = false>
static inline void multiply_whole(const float* a, const float* b, int64_t k, float* dst) {
  for (int64_t j = 0; j < kKeyBlock; j += kTileN)
    multiply_strips<kTileNv, kPairs>(a, b + j * k, k, dst + j);
}

// Rows of queries, keys or values, for products along their elements: as floats, or as pairs of
// bf16.
template <class T>
struct ProductRows {
  bool are_pairs;

  explicit ProductRows(std::initializer_list<const TensorRef*> operands) {
    are_pairs = kHasPairs && std::is_same_v<T, bf16> && machine_sums_pairs();
    for (const TensorRef* t : operands)
      are_pairs = are_pairs && t->dtype == DType::kBF16 && t->shape[3] >= 2 &&
                  t->shape[3] % 2 == 0 && t->stride[3] == 1 && t->stride[1] % 2 == 0 &&
                  t->stride[2] % 2 == 0;
  }
  int64_t steps(int64_t d) const { return are_pairs ? d / 2 : d; }
  // To dst[step][ld]. S is T, or float where the other operands of a product are narrower.
  template <class S>
  void pack(const S* src, const Loops& rows, const Loops& elements, Operand operand, int64_t first,
            int n, int64_t d, float* dst, int ld) const {
    if constexpr (kHasPairs && std::is_same_v<S, bf16>)
      if (are_pairs) return pack_pairs(src, rows, 1, operand, first, n, 0, d / 2, dst, ld);
    pack_panel(src, rows, elements, operand, first, n, 0, d, dst, ld);
  }
  void multiply_strips(const float* a, const float* b, int64_t d, float* dst) const {
    are_pairs ? TEGULA_ISA_NS::multiply_strips<kTileNv, kHasPairs>(a, b, steps(d), dst)
              : TEGULA_ISA_NS::multiply_strips(a, b, d, dst);
  }
  void multiply_whole(const float* a, const float* b, int64_t d, float* dst) const {
    are_pairs ? TEGULA_ISA_NS::multiply_whole<kHasPairs>(a, b, steps(d), dst)
              : TEGULA_ISA_NS::multiply_whole(a, b, d, dst);
  }
  void multiply_columns(const float* a, const float* b, int64_t d, int rows, int cols,
                        float* dst) const {
    are_pairs ? TEGULA_ISA_NS::multiply_columns<kHasPairs>(a, b, steps(d), rows, cols, dst)
              : TEGULA_ISA_NS::multiply_columns(a, b, d, rows, cols, dst);
  }
};

inline constexpr int kWeighedAtOnce = 4;

// Scores [kTileM][64], from row `first`, become weights, p = 2^((s - shift)·log2), and l += p by
// lane. Returns the first row whose weights are too large, or kTileM: with that row's l as it was,
// its scores perhaps lost.
TEGULA_APART int weigh_whole(float* s, const float* shift, float (*l)[16], float log2, int first) {
  for (int i = first; i < kTileM; ++i) {
    float* at = s + i * kKeyBlock;
    const Vf m = broadcast(shift + i);
    Row16 sum;
#pragma GCC unroll unrolled(2)
    for (int g = 0; g < kKeyBlock; g += kWeighedAtOnce * kLanes) {
      Vf p[kWeighedAtOnce];
#pragma GCC unroll unrolled(4)
      for (int v = 0; v < kWeighedAtOnce; ++v) p[v] = (load(at + g + v * kLanes) - m) * set1(log2);
      exp2_weights(p);
#pragma GCC unroll unrolled(4)
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

// The same where rows see the first keys of a block, hi of them at most: of a row those before
// row[i].keys.hi; kGroups = ceil(hi / 16). Scores of the row that is returned are left.
template <int kGroups>
TEGULA_APART int weigh_edge_rows(float* s, const float* shift, float (*l)[16], float log2,
                                 const QueryRow* row, int64_t k0) {
  for (int i = 0; i < kTileM; ++i) {
    float* at = s + i * kKeyBlock;
    const auto hi = static_cast<int>(row[i].keys.hi - k0);
    const Vf m = broadcast(shift + i);
    Vf p[kGroups], sum;
#pragma GCC unroll unrolled(4)
    for (int v = 0; v < kGroups; ++v) p[v] = (load(at + v * kLanes) - m) * set1(log2);
    exp2_weights(p);
#pragma GCC unroll unrolled(4)
    for (int v = 0; v < kGroups; ++v) {
      p[v] = select(first_n(hi - v * kLanes), p[v], zero());  // hidden scores may be NaN
      sum = v == 0 ? p[0] : sum + p[v];
    }
    if (exceeds({{sum}}, kMostWeight)) [[unlikely]]
      return i;
#pragma GCC unroll unrolled(4)
    for (int v = 0; v < kGroups; ++v) store(at + v * kLanes, p[v]);
    store16_n(l[i], load16(l[i]) + Row16{{sum}}, 16);
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
#pragma GCC unroll unrolled(4)
      for (int v = 0; v < kWeighedAtOnce; ++v)
        weight[v] = fma(load(p + v * kLanes), set1(scale), minus_lse) * set1(kLog2E);
      exp2_weights(weight);
#pragma GCC unroll unrolled(4)
      for (int v = 0; v < kWeighedAtOnce; ++v) {
        store(p + v * kLanes, weight[v]);
        store(ds + v * kLanes, weight[v] * (load(ds + v * kLanes) - row_delta));
      }
      p += kWeighedAtOnce * kLanes, ds += kWeighedAtOnce * kLanes;
    }
  }
}

// acc [kTileM][kTileN] goes on by weights [kTileM][64], n of each row, times values.
TEGULA_APART void add_keys(const float* p, const float* values, int64_t n, float* acc) {
  WholeTile<> sums;
  load_tile(sums, acc);
  add_products<kKeyBlock, 1, 1>(sums, p, values, n);
  store_tile(sums, acc, kTileN);
}
// By n whole blocks: [n][kTileM][64] times values `next` floats apart.
TEGULA_APART void add_blocks(const float* p, const float* values, int64_t n, int64_t next,
                             float* acc) {
  WholeTile<> sums;
  load_tile(sums, acc);
  for (; n > 0; --n, p += kTileM * kKeyBlock, values += next)
    add_products<kKeyBlock, 1, 4>(sums, p, values, kKeyBlock);
  store_tile(sums, acc, kTileN);
}
// By n weights of each of some rows, in columns [0, cols).
static inline void add_columns(const float* p, const float* values, int64_t n, int rows, int cols,
                               float* acc) {
  if (rows != kTileM || cols != kTileN)
    accumulate_tile({p, kKeyBlock, Lies::kBlockRows, values, n, rows, cols}, acc);
  else if (n == kKeyBlock)
    add_blocks(p, values, 1, 0, acc);
  else
    add_keys(p, values, n, acc);
}

// acc [kM][kTileN] goes on by kM columns of n rows of 64, times n rows of queries: kTileM, or what
// a block has more. Sums lie far apart: those of the next tile are fetched.
template <int kM>
TEGULA_APART void add_queries(const float* p, const float* queries, int64_t n, float* acc,
                              const float* next) {
  WholeTile<kM> sums;
  load_tile(sums, acc);
  const int64_t fetching = std::min<int64_t>(n, kM * kTileN * sizeof(float) / 64);
  add_products<1, kKeyBlock, 1, true>(sums, p, queries, fetching, next);
  add_products<1, kKeyBlock, 1>(sums, p + fetching * kKeyBlock, queries + fetching * kTileN,
                                n - fetching);
  store_tile(sums, acc, kTileN);
}
inline constexpr int kRestOfBlock = kKeyBlock % kTileM == 0 ? kTileM : kKeyBlock % kTileM;

}  // namespace tegula::kernel::TEGULA_ISA_NS
