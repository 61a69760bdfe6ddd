// Attention of a few rows of queries (decoding): keys and values are used where they lie, once for
// all rows of a group, at the speed of memory. The chains are those of the packed tiles.
#pragma once

#include <algorithm>
#include <type_traits>

#include "tegula/kernels/cpu/isa/dot_micro.h"

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
// never waits for arithmetic. Rows are too far apart for the processor to guess. `ahead` says which
// lines: its cursor().of_keys<n>(j, e) for n keys from j on, .of_values<n>(j, e) for n lines of key
// j.

// The same part of the rows that come next; where none do, `rows` repeats one (stride 0).
template <class T>
struct NextRows {
  static constexpr bool kSplits = false;
  ThinRows<T> rows;
  const NextRows& cursor() const { return *this; }
  template <int n>
  __attribute__((always_inline)) void of_keys(int64_t j, int64_t e) const {
    for (int l = 0; l < n; ++l) __builtin_prefetch(rows.at + (j + l) * rows.stride + e);
  }
  template <int n>
  __attribute__((always_inline)) void of_values(int64_t j, int64_t e) const {
    __builtin_prefetch(rows.at + j * rows.stride + e);
  }
};

// Scores of kR queries and kG·kLanes keys: acc = fma(q_e, k_e, acc), e ascending. q is [d][q_rows].
// Squares of keys by elements are transposed in registers; every loop over accumulators is
// unrolled, or they would live in memory.
template <class T, int kR, int kG>
struct ThinScores {
  static constexpr int64_t kLine = 64 / sizeof(T);
  const T* keys;
  int64_t stride;
  int64_t d;
  const float* q;
  int q_rows;
  using Acc = Vf[kG][kR];

  __attribute__((always_inline)) void add(Acc& acc, int g, int64_t e, Vf k) const {
#pragma GCC unroll 4
    for (int i = 0; i < kR; ++i) acc[g][i] = fma(set1(q[e * q_rows + i]), k, acc[g][i]);
  }
  // kStep elements of the keys of one group, from e on; of bf16 two in a lane: half the shuffles.
  static constexpr int64_t kPart = 4 / static_cast<int64_t>(sizeof(T)), kStep = kSquare * kPart;
  __attribute__((always_inline)) void add_square(Acc& acc, int g, int64_t e) const {
    asm volatile("" ::: "memory");  // or q's elements are kept for the next group, in memory
    Vf r[kSquare];
    load_transposed(reinterpret_cast<const float*>(keys + g * kLanes * stride + e), stride / kPart,
                    r);
#pragma GCC unroll 16
    for (int l = 0; l < kSquare; ++l) {
      if constexpr (std::is_same_v<T, float>) {
        add(acc, g, e + l, r[l]);
      } else {
        add(acc, g, e + 2 * l, as_float(shl<16>(bits(r[l]))));
        add(acc, g, e + 2 * l + 1, as_float(bits(r[l]) & set1i(static_cast<int32_t>(0xffff0000u))));
      }
    }
  }
  // What is left, and what has no square: an element at a time.
  __attribute__((always_inline)) void add_one(Acc& acc, int64_t e) const {
#pragma GCC unroll 2
    for (int g = 0; g < kG; ++g) {
      float k[kLanes];
      for (int l = 0; l < kLanes; ++l)
        k[l] = static_cast<float>(keys[(g * kLanes + l) * stride + e]);
      add(acc, g, e, load(k));
    }
  }

  // Key 0 is the block's j.
  template <class Ahead>
  void run(Ahead& ahead, int64_t j, float* s, int64_t s_stride) const {
    auto&& next = ahead.cursor();
    const auto fetch = [&](int64_t e) {
      if (e % kLine == 0) next.template of_keys<kG * kLanes>(j, e);
    };
    Acc acc;
#pragma GCC unroll 2
    for (auto& group : acc)
#pragma GCC unroll 4
      for (Vf& v : group) v = zero();
    int64_t e = 0;
    if (std::is_same_v<T, float> || (std::is_same_v<T, bf16> && stride % 2 == 0)) {
      // Whole lines of a group: keys far apart may share so few places in L1 that those of the
      // next group drive them out.
      for (; e + kLine <= d; e += kLine) {
        fetch(e);
#pragma GCC unroll 2
        for (int g = 0; g < kG; ++g)
#pragma GCC unroll 4
          for (int64_t at = 0; at < kLine; at += kStep) add_square(acc, g, e + at);
      }
      for (; e + kStep <= d; e += kStep) {
        fetch(e);
#pragma GCC unroll 2
        for (int g = 0; g < kG; ++g) add_square(acc, g, e);
      }
    }
    for (; e < d; ++e) fetch(e), add_one(acc, e);
#pragma GCC unroll 2
    for (int g = 0; g < kG; ++g)
#pragma GCC unroll 4
      for (int i = 0; i < kR; ++i) store(s + i * s_stride + g * kLanes, acc[g][i]);
  }
};

// s[i][lo, hi) of rows [0, kR), lo and hi multiples of 16; columns past the last key are any.
template <class T, int kR, class Ahead>
static void thin_scores(const ThinRows<T>& keys, Ahead& ahead, int64_t d, const float* q,
                        int q_rows, int64_t lo, int64_t hi, float* s, int64_t s_stride) {
  int64_t j = lo;
  for (; j + 2 * kLanes <= std::min(hi, keys.n); j += 2 * kLanes)
    ThinScores<T, kR, 2>{keys.at + j * keys.stride, keys.stride, d, q, q_rows}.run(ahead, j, s + j,
                                                                                   s_stride);
  for (; j + kLanes <= std::min(hi, keys.n); j += kLanes)
    ThinScores<T, kR, 1>{keys.at + j * keys.stride, keys.stride, d, q, q_rows}.run(ahead, j, s + j,
                                                                                   s_stride);
  for (; j < std::min(hi, keys.n); ++j)
    for (int i = 0; i < kR; ++i) {
      float sum = 0;
      for (int64_t e = 0; e < d; ++e)
        sum = __builtin_fmaf(q[e * q_rows + i], static_cast<float>(keys.at[j * keys.stride + e]),
                             sum);
      s[i * s_stride + j] = sum;
    }
}

// Whether sums of whole strips keep the elements 0, 2, ... before 1, 3, ...: bf16 is widened by
// halves of 32 bits, without a shuffle.
template <class T, class Ahead>
inline constexpr bool kSplitsColumns =
    Ahead::kSplits&& std::is_same_v<T, bf16>&& kTileN == 2 * kLanes;

// acc[i] [kTileN] of kR rows: acc = fma(p_j, v_j, acc), j ascending in [lo, hi), for the `cols`
// elements of the values from e on.
template <class T, int kR, bool kWhole, class Ahead>
static void thin_columns(const ThinRows<T>& values, Ahead& ahead, int64_t e, int cols,
                         const float* p, int64_t p_stride, int64_t lo, int64_t hi, float* acc) {
  Vf a[kR][kTileNv];
#pragma GCC unroll 4
  for (int i = 0; i < kR; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < kTileNv; ++v) a[i][v] = load(acc + i * kTileN + v * kLanes);
  const T* row = values.at + lo * values.stride + e;
  constexpr int64_t kLine = 64 / sizeof(T), kLines = ceil_div(kTileN, kLine);
  const bool begins_line = e % kLine == 0;
  auto&& next = ahead.cursor();
  for (int64_t j = lo; j < hi; ++j, row += values.stride) {
    if (begins_line) next.template of_values<kLines>(j, e);
    Vi pairs;
    if constexpr (kWhole && kSplitsColumns<T, Ahead>)
      pairs = bits(load(reinterpret_cast<const float*>(row)));
#pragma GCC unroll 2
    for (int v = 0; v < kTileNv; ++v) {
      Vf y;
      if constexpr (kWhole && kSplitsColumns<T, Ahead>) {
        y = as_float(v == 0 ? shl<16>(pairs) : pairs & set1i(static_cast<int32_t>(0xffff0000u)));
      } else {
        const int n = cols - v * kLanes;
        y = kWhole || n >= kLanes ? load(row + v * kLanes)
            : n > 0               ? load_n(row + v * kLanes, n)
                                  : zero();
      }
#pragma GCC unroll 4
      for (int i = 0; i < kR; ++i) a[i][v] = fma(set1(p[i * p_stride + j]), y, a[i][v]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kR; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < kTileNv; ++v) store(acc + i * kTileN + v * kLanes, a[i][v]);
}
template <class T, int kR, class Ahead>
static void thin_values(const ThinRows<T>& values, Ahead& ahead, int64_t e, int cols,
                        const float* p, int64_t p_stride, int64_t lo, int64_t hi, float* acc) {
  cols == kTileN ? thin_columns<T, kR, true>(values, ahead, e, cols, p, p_stride, lo, hi, acc)
                 : thin_columns<T, kR, false>(values, ahead, e, cols, p, p_stride, lo, hi, acc);
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
