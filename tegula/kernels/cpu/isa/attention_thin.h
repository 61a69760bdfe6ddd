// Attention of a few rows of queries (decoding): keys and values are used where they lie, once for
// all rows of a group, at the speed of memory. The chains are those of the packed tiles.
#pragma once

#include <bit>
#include <type_traits>

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cpu/isa/dot_micro.h"
#include "tegula/kernels/cpu/isa/f16_pairs.h"
#include "tegula/kernels/cpu/isa/pairs.h"

namespace tegula::kernel::TEGULA_ISA_NS {

inline constexpr int kThinQueries = kTileM < 8 ? kTileM : 8;  // rows at most

// Some keys or values, `stride` apart, each contiguous.
template <class T>
struct ThinRows {
  const T* at;
  int64_t stride;
  int64_t n;  // rows past it are not read
};

// Each loop fetches what later ones read, a line at a time between its own products: memory then
// never waits for arithmetic, and no line is asked for when too many others are under way (Zen 4
// forgets it then). Rows are too far apart for the processor to guess. `ahead` says which lines:
// its of_key(j, e) for a key, of_values<n>(j, e) for n lines of a value.

// The same part of the rows that come next; where none do, `rows` repeats one (stride 0).
template <class T>
struct NextRows {
  static constexpr bool kSplits = false;
  ThinRows<T> rows;
  __attribute__((always_inline)) void of_key(int64_t j, int64_t e) const {
    __builtin_prefetch(rows.at + j * rows.stride + e);
  }
  template <int n>
  __attribute__((always_inline)) void of_values(int64_t j, int64_t e) const {
    __builtin_prefetch(rows.at + j * rows.stride + e);
  }
};

// Floats from a head's queries and scores to the next one's.
struct NextHead {
  int64_t q = 0, s = 0;
};

// Scores of kR queries and kLanes keys of one head, or of two neighbouring ones: acc = fma(q_e,
// k_e, acc), e ascending. q is [d][kR], or with kPairs [d / 2][kR] of pairs (pairs.h), d whole
// squares. Squares of keys by elements are transposed in registers; every loop over accumulators is
// unrolled, or they would live in memory.
template <class T, int kR, int kHeads, bool kPairs = false>
struct ThinScores {
  static constexpr int64_t kLine = 64 / sizeof(T);
  // Elements in a lane, and of a square; of halves two in a lane: half the shuffles.
  static constexpr int64_t kPart = 4 / static_cast<int64_t>(sizeof(T)), kStep = kSquare * kPart;
  const T* keys;
  int64_t stride;
  int64_t d;
  const float* q;
  NextHead head;
  using Acc = Vf[kHeads][kR];
  static constexpr int64_t kOfQ = kPairs ? 2 : 1;  // elements in a float of q
  static constexpr int64_t kKeys = kHeads * kLanes;

  const T* keys_of(int h) const { return keys + h * d; }
  const float* q_of(int h) const { return q + h * head.q; }

  static inline __attribute__((always_inline)) void add(Acc& acc, int h, const float* q, Vf k) {
#pragma GCC unroll unrolled(4)
    for (int i = 0; i < kR; ++i) acc[h][i] = fma(set1(q[i]), k, acc[h][i]);
  }
  // kStep elements of the keys of one head; fetch(l) beside a lane's products.
  template <class F>
  __attribute__((always_inline)) void add_square(Acc& acc, int h, const T* k, const float* q_at,
                                                 const F& fetch) const {
    asm("" : "+r"(q_at));  // or q's elements are kept for the other head, in memory
    Vf r[kSquare];
    load_transposed(reinterpret_cast<const float*>(k), stride / kPart, r);
#pragma GCC unroll unrolled(16)
    for (int l = 0; l < kSquare; ++l, q_at += kPart * kR / kOfQ) {
      fetch(l);
      if constexpr (kPairs) {
        const Vf k_pair = swap_halves(r[l]);
#pragma GCC unroll unrolled(4)
        for (int i = 0; i < kR; ++i) acc[h][i] = dot_pairs(acc[h][i], set1(q_at[i]), k_pair);
      } else if constexpr (kPart == 1) {
        add(acc, h, q_at, r[l]);
      } else if constexpr (std::is_same_v<T, f16>) {
        Vf k_pair[2];
        widen_f16_pairs(r[l], k_pair);
        add(acc, h, q_at, k_pair[0]);
        add(acc, h, q_at + kR, k_pair[1]);
      } else {
        add(acc, h, q_at, as_float(shl<16>(bits(r[l]))));
        add(acc, h, q_at + kR, as_float(bits(r[l]) & set1i(static_cast<int32_t>(0xffff0000u))));
      }
    }
  }
  // The rest, and what has no square: an element at a time.
  __attribute__((always_inline)) void add_one(Acc& acc, int64_t e) const {
#pragma GCC unroll unrolled(2)
    for (int h = 0; h < kHeads; ++h) {
      float k[kLanes];
      for (int l = 0; l < kLanes; ++l) k[l] = static_cast<float>(keys_of(h)[l * stride + e]);
      add(acc, h, q_of(h) + e * kR, load(k));
    }
  }

  template <class Ahead>
  static void fetch_all(const Ahead& ahead, int64_t j, int64_t e) {
    for (int64_t l = 0; l < kKeys; ++l) ahead.of_key(j + l, e);
  }

  // Key 0 is the block's j.
  template <class Ahead>
  void run(const Ahead& ahead, int64_t j, float* s, int64_t s_stride) const {
    Acc acc;
#pragma GCC unroll unrolled(2)
    for (auto& of_head : acc)
#pragma GCC unroll unrolled(4)
      for (Vf& v : of_head) v = zero();
    int64_t e = 0;
    if (std::is_same_v<T, float> || stride % 2 == 0) {
      // Two heads take turns: chains enough to hide the latency of a multiply-add, and few rows at
      // a time, since those a multiple of 4 KiB apart share so few places in L1 that others drive
      // them out.
      const T *k0 = keys, *k1 = keys_of(kHeads - 1);
      const float *q0 = q, *q1 = q_of(kHeads - 1);
      for (; e + kLine <= d;
           e += kLine, k0 += kLine, k1 += kLine, q0 += kLine * kR / kOfQ, q1 += kLine * kR / kOfQ) {
#pragma GCC unroll unrolled(4)
        for (int64_t at = 0; at < kLine; at += kStep) {
          // The keys' lines are dealt out to the lanes of all squares of a line.
          constexpr int64_t kLanesAll = kLine / kStep * kHeads * kSquare,
                            kEvery = kLanesAll / kKeys;
          static_assert(kLanesAll % kKeys == 0);
          const auto fetch_from = [&](int64_t square) {
            return [&, square ](int l) __attribute__((always_inline)) {
              const int64_t lane = square * kSquare + l;
              if (lane % kEvery == 0) ahead.of_key(j + lane / kEvery, e);
            };
          };
          add_square(acc, 0, k0 + at, q0 + at * kR / kOfQ, fetch_from(at / kStep * kHeads));
          if constexpr (kHeads == 2)
            add_square(acc, 1, k1 + at, q1 + at * kR / kOfQ, fetch_from(at / kStep * kHeads + 1));
        }
      }
      if (e + kStep <= d) fetch_all(ahead, j, e);
      for (; e + kStep <= d; e += kStep)
#pragma GCC unroll unrolled(2)
        for (int h = 0; h < kHeads; ++h)
          add_square(acc, h, keys_of(h) + e, q_of(h) + e * kR, [](int) {});
    }
    for (; e < d; ++e) {
      if (e % kLine == 0) fetch_all(ahead, j, e);
      add_one(acc, e);
    }
#pragma GCC unroll unrolled(2)
    for (int h = 0; h < kHeads; ++h)
#pragma GCC unroll unrolled(4)
      for (int i = 0; i < kR; ++i) store(s + i * s_stride + h * head.s, acc[h][i]);
  }
};

// Element e of a query whose floats lie `apart`.
template <bool kPairs>
static float thin_query(const float* q, int64_t apart, int64_t e) {
  if constexpr (!kPairs) return q[e * apart];
  const uint32_t pair = std::bit_cast<uint32_t>(q[e / 2 * apart]);
  return std::bit_cast<float>(e % 2 == 0 ? pair & 0xffff0000u : pair << 16);
}

// s[i][lo, hi) of rows [0, kR), lo and hi multiples of 16; columns past the last key are any. With
// two heads the same of the next one.
template <class T, int kR, int kHeads = 1, bool kPairs = false, class Ahead>
static void thin_scores(const ThinRows<T>& keys, const Ahead& ahead, int64_t d, const float* q,
                        int64_t lo, int64_t hi, float* s, int64_t s_stride,
                        const NextHead& head = {}) {
  int64_t j = lo;
  for (; j + kLanes <= std::min(hi, keys.n); j += kLanes)
    ThinScores<T, kR, kHeads, kPairs>{keys.at + j * keys.stride, keys.stride, d, q, head}.run(
        ahead, j, s + j, s_stride);
  for (; j < std::min(hi, keys.n); ++j)
    for (int h = 0; h < kHeads; ++h)
      for (int i = 0; i < kR; ++i) {
        float sum = 0;
        for (int64_t e = 0; e < d; ++e)
          sum = __builtin_fmaf(thin_query<kPairs>(q + h * head.q + i, kR, e),
                               static_cast<float>(keys.at[j * keys.stride + h * d + e]), sum);
        s[h * head.s + i * s_stride + j] = sum;
      }
}

// Whether sums of whole strips keep the elements 0, 2, ... before 1, 3, ...: bf16 is widened by
// halves of 32 bits, without a shuffle.
template <class T, class Ahead>
inline constexpr bool kSplitsColumns =
    Ahead::kSplits&& std::is_same_v<T, bf16>&& kTileN == 2 * kLanes;

// acc[i] [kTileN] of kR rows: acc = fma(p_j, v_j, acc), j ascending in [lo, hi), for the `cols`
// elements of the values from e on; of kStrips whole strips, their sums next_strip floats apart.
// Never inlined, or its callers' registers are spilt within the loop.
template <class T, int kR, int kStrips, bool kWhole, class Ahead>
__attribute__((noinline)) static void thin_columns(const ThinRows<T>& values, const Ahead& ahead,
                                                   int64_t e, int cols, const float* p, int64_t lo,
                                                   int64_t hi, float* acc, int64_t next_strip) {
  static_assert(kWhole || kStrips == 1);
  constexpr int kVectors = kStrips * kTileNv;
  Vf a[kR][kVectors];
  const auto sum = [&](int i, int v) __attribute__((always_inline)) {
    return acc + v / kTileNv * next_strip + i * kTileN + v % kTileNv * kLanes;
  };
#pragma GCC unroll unrolled(4)
  for (int i = 0; i < kR; ++i)
#pragma GCC unroll unrolled(4)
    for (int v = 0; v < kVectors; ++v) a[i][v] = load(sum(i, v));
  const T* row = values.at + lo * values.stride + e;
  constexpr int64_t kLine = 64 / sizeof(T), kLines = ceil_div(kStrips * kTileN, kLine);
  const bool begins_line = e % kLine == 0;
  for (int64_t j = lo; j < hi; ++j, row += values.stride) {
    if (begins_line) ahead.template of_values<kLines>(j, e);
    Vf y[kVectors];
    if constexpr (kWhole && kSplitsColumns<T, Ahead>) {
#pragma GCC unroll unrolled(2)
      for (int s = 0; s < kStrips; ++s) {
        const Vi pairs = bits(load(reinterpret_cast<const float*>(row + s * kTileN)));
        y[2 * s] = as_float(shl<16>(pairs));
        y[2 * s + 1] = as_float(pairs & set1i(static_cast<int32_t>(0xffff0000u)));
      }
    } else {
#pragma GCC unroll unrolled(4)
      for (int v = 0; v < kVectors; ++v) {
        const int n = cols - v * kLanes;
        y[v] = kWhole || n >= kLanes ? load(row + v * kLanes)
               : n > 0               ? load_n(row + v * kLanes, n)
                                     : zero();
      }
    }
#pragma GCC unroll unrolled(4)
    for (int i = 0; i < kR; ++i) {
      const Vf x = set1(p[i * kKeyBlock + j]);
#pragma GCC unroll unrolled(4)
      for (int v = 0; v < kVectors; ++v) a[i][v] = fma(x, y[v], a[i][v]);
    }
  }
#pragma GCC unroll unrolled(4)
  for (int i = 0; i < kR; ++i)
#pragma GCC unroll unrolled(4)
    for (int v = 0; v < kVectors; ++v) store(sum(i, v), a[i][v]);
}
template <class T, int kR, class Ahead>
static void thin_values(const ThinRows<T>& values, const Ahead& ahead, int64_t e, int cols,
                        const float* p, int64_t lo, int64_t hi, float* acc) {
  cols == kTileN ? thin_columns<T, kR, 1, true>(values, ahead, e, cols, p, lo, hi, acc, 0)
                 : thin_columns<T, kR, 1, false>(values, ahead, e, cols, p, lo, hi, acc, 0);
}

// fn<kR>(first) for rows four at a time.
template <class F>
static void by_rows(int rows, F fn) {
  for (int i = 0; i < rows; i += 4) switch (rows - i) {
      case 1:
        fn(std::integral_constant<int, 1>(), i);
        break;
      case 2:
        fn(std::integral_constant<int, 2>(), i);
        break;
      case 3:
        fn(std::integral_constant<int, 3>(), i);
        break;
      default:
        fn(std::integral_constant<int, 4>(), i);
        break;
    }
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
