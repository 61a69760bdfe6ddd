// Which keys a query sees and what a raw product q·k becomes before the softmax: the one place that
// says so, for the forward and the backward alike. tegula/ops/attention.h is the contract.
//
//   score = user(cap·tanh(scale·q·k / cap)) + bias - slope·|position difference|
// in natural units. Every mask but the user's is a range of keys for each query (and of queries for
// each key), and both ends of the range rise with the query: so a tile is wholly visible if it lies
// within the ranges of its first and last row, wholly masked if it lies outside of both.
//
// Query i stands at aligned(i) = i + sk - sq among the keys. All indices are those of the tensors;
// with packed sequences a tile lies in one `Sequence`, and positions count from its end.
//
// Variant, by -D (each 0 or absent: costs nothing):
//   TEGULA_CAUSAL, TEGULA_WINDOW, TEGULA_VARLEN, TEGULA_DOCUMENTS, TEGULA_SOFTCAP, TEGULA_ALIBI,
//   TEGULA_DROPOUT, TEGULA_PAGED 0 | 1; TEGULA_BIAS 0 | 1 (f32) | 2 (of the tensors' type);
//   TEGULA_SINKS 0 | 1 TEGULA_SCORE_FN  an expression in score, b, h, i, j, sq, sk; the score has
//   type T TEGULA_MASK_FN   an expression in b, h, i, j, sq, sk: whether query i sees key j
// Random numbers: Philox4x32-10 [Salmon et al. 2011, §4], as in tegula/base/philox.h.
#pragma once

#include "tegula/kernels/cuda/attention_params.h"
#include "tegula/kernels/cuda/attention_user.cuh"
#include "tegula/kernels/cuda/count.cuh"
#include "tegula/kernels/cuda/ptx/types.cuh"

#ifndef TEGULA_WINDOW
#define TEGULA_WINDOW 0
#endif
#ifndef TEGULA_VARLEN
#define TEGULA_VARLEN 0
#endif
#ifndef TEGULA_DOCUMENTS
#define TEGULA_DOCUMENTS 0
#endif
#ifndef TEGULA_SOFTCAP
#define TEGULA_SOFTCAP 0
#endif
#ifndef TEGULA_ALIBI
#define TEGULA_ALIBI 0
#endif
#ifndef TEGULA_DROPOUT
#define TEGULA_DROPOUT 0
#endif
#ifndef TEGULA_BIAS
#define TEGULA_BIAS 0
#endif
#ifndef TEGULA_SINKS
#define TEGULA_SINKS 0
#endif
#ifndef TEGULA_PAGED
#define TEGULA_PAGED 0
#endif

namespace tegula::cuda {

constexpr bool kIsCausal = TEGULA_CAUSAL;
constexpr bool kHasWindow = TEGULA_WINDOW;
constexpr bool kIsPacked = TEGULA_VARLEN;
constexpr bool kHasDocuments = TEGULA_DOCUMENTS;
constexpr bool kHasSoftcap = TEGULA_SOFTCAP;
constexpr bool kHasAlibi = TEGULA_ALIBI;
constexpr bool kHasDropout = TEGULA_DROPOUT;
constexpr int kBias = TEGULA_BIAS;
constexpr bool kHasSinks = TEGULA_SINKS;
constexpr bool kIsPaged = TEGULA_PAGED;
// Keys before a row's first may be hidden, so that its first tiles need a mask as its last do.
// (Tiles of e4m3 begin at multiples of 16 keys, sequences anywhere.)
constexpr bool kHasStart = kHasWindow || kHasDocuments || (kIsF8 && kIsPacked);
// A score is more than scale · q·k.
constexpr bool kModifies = kHasSoftcap || kHasAlibi || kBias != 0 || kHasUserScore;

constexpr float kLog2e = 1.44269504f;

// Query rows [q_begin, q_end) see keys of [k_begin, k_end) only.
struct Sequence {
  int q_begin, q_end, k_begin, k_end;
#if TEGULA_PAGED
  int index;  // whose pages; its keys are [0, k_end)
#endif
};

#if TEGULA_PAGED
// The keys of a sequence, as many as its pages hold.
__device__ inline int keys_in_pages(const AttentionFeatureParams& f, int sequence) {
  return min(max(f.seqlens_k[sequence], 0), f.pages_per_sequence * f.page_size);
}
// Where its key j lies, in elements from the first page's first.
__device__ inline long long place_in_pages(const AttentionFeatureParams& f, const Sequence& s,
                                           const AttentionTensor& t, int j) {
  const u32 page = u32(j) / u32(f.page_size), row = u32(j) % u32(f.page_size);
  const int entry = f.block_table[static_cast<long long>(s.index) * f.pages_per_sequence + page];
  return min(max(entry, 0), f.last_page) * t.batch + row * t.row;
}
#endif

struct Range {
  int lo, hi;  // [lo, hi), hi >= lo
};

// ---- Packed sequences ---------------------------------------------------------------------------
// n sequences have n + 1 offsets; with the rows before the first and after the last offset there
// are n + 2 parts, of which part 0 and part n + 1 see nothing.

__device__ inline int part_begin(const int* offsets, int n, int size, int part) {
  if (part == 0) return 0;
  return part > n + 1 ? size : min(max(offsets[part - 1], 0), size);
}

// Parts are cut into tiles of kTileRows rows; part p begins with tile begin(p) / kTileRows + p,
// which leaves it enough of them (some are empty) and needs no table. There are
// size / kTileRows + n + 2 tiles in all. Returns the part of tile `index`, and the tile's first
// row.
template <int kTileRows>
__device__ inline int part_of_tile(const int* offsets, int n, int size, int index, int& row) {
  int lo = 0, hi = n + 2;  // the part lies in [lo, hi)
  while (hi - lo > 1) {
    const int middle = (lo + hi) / 2;
    if (part_begin(offsets, n, size, middle) / kTileRows + middle <= index)
      lo = middle;
    else
      hi = middle;
  }
  const int begin = part_begin(offsets, n, size, lo);
  row = begin + (index - begin / kTileRows - lo) * kTileRows;
  return lo;
}

__device__ inline Sequence sequence_of_part(const AttentionFeatureParams& f, int part, int seqlen_q,
                                            int seqlen_k) {
  const int n = f.n_sequences;
#if TEGULA_PAGED
  Sequence s{part_begin(f.cu_seqlens_q, n, seqlen_q, part),
             part_begin(f.cu_seqlens_q, n, seqlen_q, part + 1), 0, 0, min(max(part - 1, 0), n - 1)};
  s.q_end = max(s.q_end, s.q_begin);
  if (part > 0 && part <= n) s.k_end = keys_in_pages(f, s.index);
  return s;
#else
  Sequence s{part_begin(f.cu_seqlens_q, n, seqlen_q, part),
             part_begin(f.cu_seqlens_q, n, seqlen_q, part + 1),
             part_begin(f.cu_seqlens_k, n, seqlen_k, part),
             part_begin(f.cu_seqlens_k, n, seqlen_k, part + 1)};
  s.q_end = max(s.q_end, s.q_begin), s.k_end = max(s.k_end, s.k_begin);
  return s;
#endif
}
__device__ inline bool sees_nothing(const AttentionFeatureParams& f, int part) {
  return part == 0 || part == f.n_sequences + 1;
}

// ---- Dropout ------------------------------------------------------------------------------------

// Random bits 4 · block .. 4 · block + 3 of a stream.
__device__ inline uint4 philox(u64 seed, u64 stream, u64 block) {
  u32 c0 = u32(block), c1 = u32(block >> 32), c2 = u32(stream), c3 = u32(stream >> 32);
  u32 k0 = u32(seed), k1 = u32(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const u64 p0 = u64(0xD2511F53u) * c0, p1 = u64(0xCD9E8D57u) * c2;
    c0 = u32(p1 >> 32) ^ c1 ^ k0, c1 = u32(p1);
    c2 = u32(p0 >> 32) ^ c3 ^ k1, c3 = u32(p0);
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

__device__ inline u32 word(const uint4& r, u32 i) {
  const u32 low = i & 1 ? r.y : r.x, high = i & 1 ? r.w : r.z;
  return i & 2 ? high : low;
}

// ---- Scores -------------------------------------------------------------------------------------

// The scores of one head of one batch entry, within one sequence.
struct AttentionScore {
  const AttentionFeatureParams& f;
  Sequence s;
  int batch, head, n_heads_q, seqlen_q, seqlen_k;
  float scale;
  float slope;  // of ALiBi

  __device__ AttentionScore(const AttentionFeatureParams& f, Sequence s, int batch, int head,
                            int n_heads_q, int seqlen_q, int seqlen_k, float scale)
      : f(f),
        s(s),
        batch(batch),
        head(head),
        n_heads_q(n_heads_q),
        seqlen_q(seqlen_q),
        seqlen_k(seqlen_k),
        scale(scale),
        slope(kHasAlibi ? f.slopes[head] : 0.f) {}

  // Where query i stands among the keys.
  __device__ int aligned(int i) const { return s.k_end - (s.q_end - i); }

  // The keys that query i of the sequence sees, but for the user's mask. Both ends rise with i.
  __device__ Range keys(int i) const {
    Range r{s.k_begin, s.k_end};
    if constexpr (kHasDocuments)
      narrow(r, f.documents_k + static_cast<long long>(batch) * seqlen_k,
             f.documents_q[static_cast<long long>(batch) * seqlen_q + i]);
    if constexpr (kHasWindow) {
      if (f.window_left >= 0) r.lo = max(r.lo, aligned(i) - f.window_left);
      if (!kIsCausal && f.window_right >= 0) r.hi = min(r.hi, aligned(i) + f.window_right + 1);
    }
    if constexpr (kIsCausal) r.hi = min(r.hi, aligned(i) + 1);
    r.hi = max(r.hi, r.lo);
    return r;
  }

  // The queries that see key j of the sequence, but for the user's mask. Both ends rise with j.
  __device__ Range queries(int j) const {
    Range r{s.q_begin, s.q_end};
    if constexpr (kHasDocuments)
      narrow(r, f.documents_q + static_cast<long long>(batch) * seqlen_q,
             f.documents_k[static_cast<long long>(batch) * seqlen_k + j]);
    const int i = s.q_end - (s.k_end - j);  // the query that stands at j
    if constexpr (kHasWindow) {
      if (f.window_left >= 0) r.hi = min(r.hi, i + f.window_left + 1);
      if (!kIsCausal && f.window_right >= 0) r.lo = max(r.lo, i - f.window_right);
    }
    if constexpr (kIsCausal) r.lo = max(r.lo, i);
    r.hi = max(r.hi, r.lo);
    return r;
  }

  // Whether the user's mask allows a pair that the ranges leave.
  __device__ bool user_sees(int i, int j) const {
    if constexpr (kHasUserMask)
      return user_mask(batch, head, i - s.q_begin, j - s.k_begin, s.q_end - s.q_begin,
                       s.k_end - s.k_begin);
    return true;
  }

  // Scores are exp2(score · factor_log2() - lse · log2 e); factor() is the same to base e.
  __device__ static float factor(float scale) { return kModifies ? 1.f : scale; }
  __device__ static float factor_log2(float scale_log2) { return kModifies ? kLog2e : scale_log2; }

  // The score of a raw product, times 1 / factor(). Pair (i, j) must lie in the tensors.
  __device__ float operator()(float raw, int i, int j) const { return evaluate<float>(raw, i, j); }

  // The same; `slope` becomes d score / d (scale · q·k). (d score / d bias is 1.)
  __device__ float operator()(float raw, int i, int j, float& slope_out) const {
    if constexpr (!kModifies) {
      slope_out = 1.f;
      return raw;
    }
    const Dual x = evaluate<Dual>(raw, i, j);
    slope_out = x.slope;
    return x.value;
  }

  // Whether dropout keeps the weight of pair (i, j). What is kept is to be multiplied with
  // f.keep_factor.
  __device__ bool keeps(int i, int j) const {
    const u64 at = pair(i, j);
    return is_kept(word(philox(u64(*f.seed), f.stream, at >> 2), u32(at) & 3));
  }

  // The same of a thread's elements, in bit e, as a warp's product leaves them: query row + 8 (e /
  // 2 % 2) and key column + 8 (e / 4) + e % 2, where 4 lanes share a row and are 2 columns apart.
  //
  // Where a block of random bits is 4 keys that 2 lanes have, each lane draws for one of the two
  // queries and gives the other its half: a quarter of the blocks that elements alone would take.
  template <int kElements>
  __device__ u32 kept(int row, int column) const {
    static_assert(kElements % 4 == 0 && kElements <= 32, "a bit an element");
    const u32 lane = threadIdx.x % 32, half = lane % 2;
    u32 mine = 0;
    if (has_whole_blocks(column - 2 * int(lane % 4))) {
      const u64 block = pair(row + 8 * int(half), column - 2 * int(half)) >> 2;
#pragma unroll 2
      for (int n = 0; n < kElements / 4; ++n) mine |= kept_of_block(block + 2 * n) << (4 * n);
      const u32 other = __shfl_xor_sync(0xffffffff, mine, 1);
      const u32 upper = half ? other : mine, lower = half ? mine : other;
      return (upper >> (2 * half) & 0x33333333) | (lower >> (2 * half) & 0x33333333) << 2;
    }
#pragma unroll 1
    for (int e = 0; e < kElements; ++e)
      mine |= u32(keeps(row + e / 2 % 2 * 8, column + e / 4 * 8 + e % 2)) << e;
    return mine;
  }

  // In the transposed product: query row + 8 (e / 4) + e % 2 and key + 8 (e / 2 % 2). The 4 keys of
  // a block are of lanes 4 apart, each of which draws for one of 4 elements; not if !kShares, which
  // takes fewer registers.
  template <int kElements, bool kShares>
  __device__ u32 kept_transposed(int row, int key) const {
    static_assert(kElements % 4 == 0 && kElements <= 32, "a bit an element");
    const u32 lane = threadIdx.x % 32, which = lane / 4 % 4;
    u32 mine = 0;
    if (kShares && has_whole_blocks(key - int(which))) {
      const u64 block = pair(row + int(which % 2), key - int(which) + int(which / 2) * 8) >> 2;
#pragma unroll 2
      for (int n = 0; n < kElements / 4; ++n)
        mine |= kept_of_block(block + u64(n) * 2 * u64(seqlen_k)) << (4 * n);
      u32 all = 0;
#pragma unroll
      for (u32 e = 0; e < 4; ++e)
        all |= (__shfl_sync(0xffffffff, mine, (lane & ~12u) | e << 2) >> which & 0x11111111) << e;
      return all;
    }
#pragma unroll 1
    for (int e = 0; e < kElements; ++e)
      mine |= u32(keeps(row + e / 4 * 8 + e % 2, key + e / 2 % 2 * 8)) << e;
    return mine;
  }

 private:
  // r becomes those of its entries of a rising list that are `id`.
  __device__ static void narrow(Range& r, const int* list, int id) {
    r.lo = first_not_below(list, r, id);
    if (id < 0x7FFFFFFF) r.hi = first_not_below(list, r, id + 1);
  }
  __device__ static int first_not_below(const int* list, Range r, int id) {
    while (r.lo < r.hi) {
      const int middle = (r.lo + r.hi) >> 1;
      if (list[middle] < id)
        r.lo = middle + 1;
      else
        r.hi = middle;
    }
    return r.lo;
  }

  // T: float, or Dual for the derivative by scale · raw.
  template <class T>
  __device__ T evaluate(float raw, int i, int j) const {
    if constexpr (!kModifies) return raw;
    T x = seeded<T>(raw * scale);
    if constexpr (kHasSoftcap) x = tanh(x * f.softcap_inverse) * f.softcap;
    if constexpr (kHasUserScore)
      x = user_score<T>(x, batch, head, i - s.q_begin, j - s.k_begin, s.q_end - s.q_begin,
                        s.k_end - s.k_begin);
    if constexpr (kBias != 0) x = x + bias(i, j);
    if constexpr (kHasAlibi) x = x - slope * float(abs(aligned(i) - j));
    return x;
  }
  __device__ float bias(int i, int j) const {
    const long long at = batch * f.bias_batch + head * f.bias_head + i * f.bias_row + j;
    if constexpr (kBias == 1) return static_cast<const float*>(f.bias)[at];
    return element_to_float(static_cast<const u16*>(f.bias)[at]);
  }

  __device__ u64 pair(int i, int j) const {
    return (u64(batch * n_heads_q + head) * u64(seqlen_q) + u64(i)) * u64(seqlen_k) + u64(j);
  }
  __device__ bool is_kept(u32 bits) const { return float(bits >> 8) * 0x1p-24f >= f.dropout; }
  // Pairs of `key` and the 3 keys behind it, of any query, have the bits of one block.
  __device__ bool has_whole_blocks(int key) const { return ((seqlen_k | key) & 3) == 0; }
  __device__ u32 kept_of_block(u64 block) const {
    const uint4 r = philox(u64(*f.seed), f.stream, block);
    // As is_kept, without a conversion each: what is scaled by a power of two is exact.
    const u32 least = u32(ceilf(f.dropout * 0x1p24f));
    return u32(r.x >> 8 >= least) | u32(r.y >> 8 >= least) << 1 | u32(r.z >> 8 >= least) << 2 |
           u32(r.w >> 8 >= least) << 3;
  }
};

// ---- Counts (count.cuh) -------------------------------------------------------------------------

// FLOPs of a pair's score, but for its product.
constexpr int kScoreFlops = 1 + 3 * kHasSoftcap + (kBias != 0) + 2 * kHasAlibi;

// How many pairs of a thread's elements see each other: element e is query row + 8 (e / 2 % 2) and
// key column + 8 (e / 4) + e % 2; transposed, the other way round.
template <int kElements, bool kTransposed = false>
__device__ inline u64 pairs_seen(const AttentionScore& score, int row, int column) {
  u64 n = 0;
#pragma unroll 1
  for (int e = 0; e < kElements; ++e) {
    const int along = e / 4 * 8 + e % 2, across = e / 2 % 2 * 8;
    const int i = row + (kTransposed ? along : across), j = column + (kTransposed ? across : along);
    if (i < score.s.q_begin || i >= score.s.q_end) continue;
    const Range keys = score.keys(i);
    n += j >= keys.lo && j < keys.hi && score.user_sees(i, j);
  }
  return n;
}

}  // namespace tegula::cuda
