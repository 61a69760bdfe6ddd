// dQ of the attention backward by mma.sync, in a kernel of its own beside attention_bwd_mma_kv
// (attention_bwd_mma.cu).
//
//   P = exp(score - lse),  dS = P ∘ (dO Vᵀ - delta),  dQ = scale · dS K
// A block owns kRows queries, 16 · kGroups to a warp, which keeps its rows of dQ in registers while
// tiles of kKeysOfTile keys pass by, copied one ahead; dS goes from one product to the next in
// registers.
#pragma once

#include "tegula/kernels/cuda/attention_bwd_order.cuh"
#include "tegula/kernels/cuda/attention_mma_tiles.cuh"

namespace tegula::cuda {

// Whether dQ is summed in memory by the blocks that make dK and dV, else it has a kernel of its
// own.
constexpr bool kSumsDq = TEGULA_ADDS_DQ;

// sum[16][2 kSum] · factor to columns from `first` on of rows [row, end) of `to`.
template <int kSum>
__device__ inline void write_sums(const AttentionBwdParams& p, const float* sum, float factor,
                                  const AttentionTensor& to, int row, int end, int head, int batch,
                                  int first = 0) {
  const int lane = int(threadIdx.x % 32);
  u32 zero = 0;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int i = row + lane / 4 + 8 * r;
    if (i >= end) continue;
    u16* at = row_of<u16>(to, batch, i, head) + first + 2 * (lane % 4);
#pragma unroll
    for (int n = 0; n < kSum / 4; ++n) {
      const u32 x = pack_element(sum[4 * n + 2 * r] * factor, sum[4 * n + 2 * r + 1] * factor);
      if constexpr (kMayLeak) zero = times_zero_plus(x, zero);
      const int column = first + 8 * n + 2 * (lane % 4);
      if (column + 1 < p.head_dim)
        *reinterpret_cast<u32*>(at + 8 * n) = x;
      else if (column < p.head_dim)
        at[8 * n] = u16(x);
    }
  }
  if constexpr (kMayLeak) {
    if ((zero & 0x7FFF7FFF) != 0) *p.leaked = 1;
  }
}

#if !TEGULA_ADDS_DQ
namespace q {

constexpr int kGroups = kD > 128 ? 1 : TEGULA_GROUPS;  // of 16 queries of a warp
constexpr int kWarps = 4;
constexpr int kOwn = 16 * kGroups;
constexpr int kRows = kWarps * kOwn;
constexpr int kBlockThreads = 32 * kWarps;
constexpr int kKeysOfTile = TEGULA_KEYS;
constexpr int kX = kKeysOfTile / 2;  // scores of a thread and group
constexpr int kBlockBytes = kRows * kTileRowBytes, kPassingBytes = kKeysOfTile * kTileRowBytes;
using Unit = QueryUnit<kRows, kKeysOfTile>;
constexpr int kUnrolled = 16;

struct Warp {
  const AttentionBwdParams& p;
  const Unit& t;
  u32 q, d_o;  // [kBoxes][kRows][64]
  u32 k, v;    // two of [kBoxes][kKeysOfTile][64]
  u32 lane, warp;
  float lse2[kGroups][2], delta[kGroups][2];  // of this thread's rows

  __device__ int row(int g) const { return t.row + int(warp * kOwn + 16 * g + lane / 4); }

  __device__ void fetch_block() const {
    const int rows = p.seqlen_q - t.row;
    copy_rows<kRows, kBlockThreads>(q, row_of<u16>(p.q, t.batch, t.row, t.head), p.q.row, rows,
                                    p.head_dim);
    copy_rows<kRows, kBlockThreads>(d_o, row_of<u16>(p.d_o, t.batch, t.row, t.head), p.d_o.row,
                                    rows, p.head_dim);
  }
  __device__ void fetch(int n) const {
    const int key = t.key + n * kKeysOfTile, rows = p.seqlen_k - key, head = t.head / p.group;
    const u32 slot = n % 2 * kPassingBytes;
    copy_rows<kKeysOfTile, kBlockThreads>(k + slot, row_of<u16>(p.k, t.batch, key, head), p.k.row,
                                          rows, p.head_dim);
    copy_rows<kKeysOfTile, kBlockThreads>(v + slot, row_of<u16>(p.v, t.batch, key, head), p.v.row,
                                          rows, p.head_dim);
  }

  // Which weights of keys [key, key + kKeysOfTile) dropout keeps.
  __device__ u32 kept_of(int g, const AttentionScore& score, int key) const {
    if constexpr (kHasDropout) return score.kept<kX>(row(g), key + 2 * int(lane % 4));
    return ~0u;
  }

  // Scores of keys [key, key + kKeysOfTile) and dP to dS.
  template <bool kMasked>
  __device__ void differ(float (&x)[kX], const float (&dp)[kX], int g, const AttentionScore& score,
                         int key, u32 kept) const {
    const float factor = AttentionScore::factor_log2(p.scale_log2);
    const int column = key + 2 * int(lane % 4);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int i = row(g) + 8 * r;
      const Range seen = kMasked && i < t.s.q_end ? score.keys(i) : Range{0, 0};
#pragma unroll
      for (int n = 0; n < kX / 4; ++n)
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const int e = 4 * n + 2 * r + c, j = column + 8 * n + c;
          bool sees = true;
          if constexpr (kMasked) {
            sees = j >= seen.lo && j < seen.hi;
            if constexpr (kHasUserMask) sees = sees && score.user_sees(i, j);
          }
          const float slope = to_score(x[e], score, i, j, sees);
          float w = exp2_approx(__fmaf_rn(x[e], factor, -lse2[g][r]));
          if constexpr (kMasked) w = sees ? w : 0.f;
          const float d = d_score(w, dp[e], delta[g][r], kept, e, p.f.keep_factor);
          if constexpr (kBias != 0) add_bias_gradient(p, score, i, j, d, w != 0.f && sees);
          x[e] = kHasSlope ? d * slope : d;
        }
      if constexpr (kIsHeavy) asm volatile("" ::: "memory");
    }
  }

  __device__ void read_numbers() {
    const int last = t.s.q_end - 1;
    const long long head_of_all = t.batch * p.n_heads_q + t.head;
#pragma unroll
    for (int g = 0; g < kGroups; ++g)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int i = row(g) + 8 * r, within = (i - t.row) % kTile;
        const long long tile = head_of_all * p.n_tiles_m + t.slot(i - within);
        lse2[g][r] = i <= last ? p.lse2[tile * kTile + within] : -kNegativeInfinity;
        delta[g][r] = i <= last ? p.delta[tile * kTile + within] : 0.f;
      }
  }

  // The keys that all rows of this warp see.
  __device__ Range seen_by_all() const {
    const int first = t.row + int(warp) * kOwn, last = first + kOwn - 1;
    if (kHasUserMask || last >= t.s.q_end) return {0, 0};
    const AttentionScore score = scores_of(p, t.s, t.batch, t.head);
    return {score.keys(last).lo, score.keys(first).hi};
  }

  __device__ void run() {
    float dq[kGroups][kD / 2];
#pragma unroll
    for (int g = 0; g < kGroups; ++g)
#pragma unroll
      for (int i = 0; i < kD / 2; ++i) dq[g][i] = 0.f;
    if (t.n_blocks > 0) {
      fetch_block();
      fetch(0);
      cp_async_commit();
      read_numbers();
      const Range whole = seen_by_all();
      const AttentionScore score = scores_of(p, t.s, t.batch, t.head);
      const u32 first_row = warp * kOwn * kRowBytes;
      for (int n = 0; n < t.n_blocks; ++n) {
        cp_async_wait<0>();
        __syncthreads();
        if (n + 1 < t.n_blocks) fetch(n + 1);
        cp_async_commit();
        const u32 slot = n % 2 * kPassingBytes;
        const int key = t.key + n * kKeysOfTile;
        float x[kGroups][kX], dp[kGroups][kX];
        u32 packed[kGroups][kX / 2];
        make_scores<kRows, kKeysOfTile, kUnrolled>(x, q + first_row, k + slot, renewed(lane));
        make_scores<kRows, kKeysOfTile, kUnrolled>(dp, d_o + first_row, v + slot, renewed(lane));
        const bool sees_all = key >= whole.lo && key + kKeysOfTile <= whole.hi;
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          const u32 kept = kept_of(g, score, key);
          count_dq<kX>(p, score, row(g), key + 2 * int(lane % 4));
          if (sees_all)
            differ<false>(x[g], dp[g], g, score, key, kept);
          else
            differ<true>(x[g], dp[g], g, score, key, kept);
#pragma unroll
          for (int i = 0; i < kX / 2; ++i)
            packed[g][i] = pack_element(x[g][2 * i], x[g][2 * i + 1]);
        }
        add_weighted<kKeysOfTile>([&](int g) { return dq[g]; }, packed, k + slot, renewed(lane));
      }
    }
#pragma unroll
    for (int g = 0; g < kGroups; ++g)
      write_sums<kD / 2>(p, dq[g], p.scale, p.dq, t.row + int(warp) * kOwn + 16 * g, t.s.q_end,
                         t.head, t.batch);
  }
};

}  // namespace q

// Grid n_units_q · b · hq.
extern "C" __global__ void __launch_bounds__(q::kBlockThreads, 8 / q::kWarps)
    attention_bwd_mma_q(const AttentionBwdParams p) {
  extern __shared__ __align__(1024) char smem[];
  const u32 at = smem_address(smem), passing = at + 2 * q::kBlockBytes;
  __shared__ __align__(alignof(q::Unit)) char unit[sizeof(q::Unit)];
  q::Unit& t = *reinterpret_cast<q::Unit*>(unit);
  if (threadIdx.x == 0) t = q::Unit(p, int(blockIdx.x));
  __syncthreads();
  q::Warp warp{p,
               t,
               at,
               at + q::kBlockBytes,
               passing,
               passing + 2 * q::kPassingBytes,
               threadIdx.x % 32,
               uniform(threadIdx.x / 32)};
  warp.run();
}
#endif

}  // namespace tegula::cuda
