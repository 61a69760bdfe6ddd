// dQ of the attention backward in a kernel of its own: the same bits in every run, and no sums in
// memory, for two products of scores more. Beside attention_bwd_kv (attention_bwd_wide_sm90.cu).
//
//   P = exp(scale · Q Kᵀ - lse),  dS = P ∘ (dO Vᵀ - delta),  dQ = scale · dS K
// A block owns 128 queries, 64 to a warpgroup, which keeps its rows of dQ in registers while tiles
// of 64 keys pass by; dS is the register operand of the product with K. In a step a warpgroup
// issues the scores of the next tile, then the sum of the present one, and makes weights while that
// runs; dO Vᵀ follows, for which the other warpgroup's work fills the tensor cores.
#pragma once

#include "tegula/kernels/cuda/attention_bwd_tiles.cuh"

namespace tegula::cuda {

namespace q {

constexpr int kConsumers = 2;
constexpr int kTileM = kConsumers * kTile;
constexpr int kThreads = 128 * (1 + kConsumers);
constexpr int kKStages = kD == 256 ? 2 : kD == 192 ? 3 : 4;
constexpr int kVStages = kKStages - 1;
constexpr int kBlockBox = kTileM * kRowBytes;
// Columns of Q in registers, in steps of 16: as many as there is room for.
constexpr int kKeptSteps = kIsHeavy ? 0 : kD == 256 ? 4 : 12;

// The gradient of a bias is what weigh() leaves: it is added in one place for all tiles, so that
// the compiler has half of it to do.
constexpr bool kAddsLater = kBias != 0 && !kHasSlope && !kHasUserMask;

struct Shared {
  char *q, *d_o;  // [kBoxes][kTileM][64]
  Passing<kKStages> k;
  Passing<kVStages> v;
  Barrier* q_full;

  __device__ explicit Shared(char* base) {
    char* at = base + ((1024 - (smem_address(base) & 1023)) & 1023);
    q = at, at += kConsumers * kTileBytes;
    d_o = at, at += kConsumers * kTileBytes;
    k.tiles = at, at += kKStages * kTileBytes;
    v.tiles = at, at += kVStages * kTileBytes;
    q_full = reinterpret_cast<Barrier*>(at);
    k.full = q_full + 1, k.free = k.full + kKStages;
    v.full = k.free + kKStages, v.free = v.full + kVStages;
  }
};

using Unit = QueryUnit<kTileM, kTile>;

struct Producer {
  const AttentionBwdParams& p;
  const Shared& s;
  const TensorMap *q_map, *k_map, *v_map, *do_map;

  __device__ void run() {
    const Unit t(p, blockIdx.x);
    const int row = t.row;
    Ring<kKStages> k_ring;
    Ring<kVStages> v_ring;
    barrier_arrive_expect(s.q_full, 2 * kConsumers * kTileBytes);
    load_block(s.q, kConsumers, q_map, s.q_full, row, t.head, t.batch);
    load_block(s.d_o, kConsumers, do_map, s.q_full, row, t.head, t.batch);
    const int head = t.head / p.group;
    for (int n = 0; n < t.n_blocks; ++n) {
      s.k.load(k_ring, 0, k_map, t.key + n * kTile, head, t.batch);
      s.v.load(v_ring, 0, v_map, t.key + n * kTile, head, t.batch);
      k_ring.advance(), v_ring.advance();
    }
  }
};

struct Consumer {
  const AttentionBwdParams& p;
  const Shared& s;
  u32 wg;
  float dq[kOut];
  float lse2[2], delta[2];  // of this thread's rows
  Range seen[2];
  u32 kept;
  KeptRows<kKeptSteps> kept_q;

  __device__ u32 lane() const { return threadIdx.x % 32; }
  __device__ u32 warp() const { return threadIdx.x / 32 % 4; }

  // Scores of keys [key, key + kTile) to what dP - delta is multiplied with; with a bias to dS,
  // given dP: its gradient is made of weights before the slope of the score, which nothing else
  // needs.
  template <bool kMasked>
  __device__ void weigh(float (&x)[kScores], const float (&dp)[kScores],
                        const AttentionScore& score, int row, int key) {
    const float factor = AttentionScore::factor_log2(p.scale_log2);
    const int column = key + 2 * int(lane() % 4);
#pragma unroll
    for (int e = 0; e < kScores; ++e) {
      const int r = e / 2 % 2, i = row + 8 * r, j = column + e / 4 * 8 + e % 2;
      bool sees = true;
      if constexpr (kMasked) {
        sees = j >= seen[r].lo && j < seen[r].hi;
        if constexpr (kHasUserMask) sees = sees && score.user_sees(i, j);
      }
      const float slope = to_score(x[e], score, i, j, sees);
      float w = exp2_approx(__fmaf_rn(x[e], factor, -lse2[r]));
      if constexpr (kMasked) w = sees ? w : 0.f;
      if constexpr (kBias != 0) {
        const bool has_weight = w != 0.f && j >= seen[r].lo && j < seen[r].hi;
        w = d_score(w, dp[e], delta[r], kept, e, p.f.keep_factor);
        if constexpr (!kAddsLater) add_bias_gradient(p, score, i, j, w, has_weight);
      }
      x[e] = kHasSlope ? w * slope : w;
      if constexpr (kIsHeavy) asm volatile("" ::: "memory");
    }
  }

  __device__ void weigh(float (&x)[kScores], const float (&dp)[kScores], const Unit& t,
                        const Range& whole, int n, bool is_first) {
    const int key = t.key + n * kTile;
    int row = t.row + int(wg * kTile + warp() * 16 + lane() / 4);
    const AttentionScore score = scores_of(p, t.s, t.batch, t.head);
    count_dq<kScores>(p, score, row, key + 2 * int(lane() % 4));
    if constexpr (kHasDropout) kept = score.kept<kScores>(row, key + 2 * int(lane() % 4));
    // (Twice in the code is enough: the first tile is taken for one that needs a mask.)
    if (!is_first && key >= whole.lo && key + kTile <= whole.hi)
      weigh<false>(x, dp, score, row, key);
    else
      weigh<true>(x, dp, score, row, key);
    if constexpr (kAddsLater) {
      asm volatile("" : "+r"(row));  // or the rows' addresses are kept from tile to tile, and spill
#pragma unroll
      for (int e = 0; e < kScores; ++e) {
        const int r = e / 2 % 2, j = key + 2 * int(lane() % 4) + e / 4 * 8 + e % 2;
        add_bias_gradient(p, score, row + 8 * r, j, x[e], j >= seen[r].lo && j < seen[r].hi);
      }
    }
  }

  __device__ void make_dp(float (&dp)[kScores], const char* do_rows, Ring<kVStages>& ring) {
    barrier_wait(s.v.full + ring.slot, ring.parity);
    issue_scores<kBlockBox>(dp, do_rows, s.v.tile(ring.slot));
    wgmma_wait<0>();
    fence_registers(dp);
    s.v.release(ring.slot);
    ring.advance();
  }

  // Scores to dS where a bias has a gradient; elsewhere to weights, which differ() then turns to
  // dS.
  __device__ void weigh_or_differ(float (&x)[kScores], const Unit& t, const Range& whole,
                                  const char* do_rows, int n, Ring<kVStages>& ring) {
    float dp[kScores];
    if constexpr (kBias != 0) make_dp(dp, do_rows, ring);
    weigh(x, dp, t, whole, n, n == 0);
  }
  __device__ void differ(float (&x)[kScores], const char* do_rows, Ring<kVStages>& ring) {
    if constexpr (kBias != 0) return;
    float dp[kScores];
    make_dp(dp, do_rows, ring);
#pragma unroll
    for (int e = 0; e < kScores; ++e)
      x[e] = d_score(x[e], dp[e], delta[e / 2 % 2], kept, e, p.f.keep_factor);
  }

  __device__ void run(const TensorMap* map) {
    const Unit t(p, blockIdx.x);
    const int first_row = t.row + int(wg) * kTile;
    const char* q_rows = s.q + wg * kBoxBytes;
    const char* do_rows = s.d_o + wg * kBoxBytes;
    kept = ~0u;
#pragma unroll
    for (int i = 0; i < kOut; ++i) dq[i] = 0.f;
    Range whole = {0, 0};  // the keys that all rows of this warpgroup see
    {
      const AttentionScore score = scores_of(p, t.s, t.batch, t.head);
      const long long head_of_all = t.batch * p.n_heads_q + t.head;
      const int last = t.s.q_end - 1;
      // None of a tile that ends behind the sequence: a bias has no rows there to be read.
      if (!kHasUserMask && first_row + kTile - 1 <= last)
        whole = {score.keys(first_row + kTile - 1).lo, score.keys(first_row).hi};
      // Tiles of the workspace, like those here, begin with the sequence.
      const long long tile = head_of_all * p.n_tiles_m + t.slot(first_row);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int within = int(warp() * 16 + lane() / 4) + 8 * r, row = first_row + within;
        const bool valid = row <= last;
        seen[r] = valid ? score.keys(row) : Range{0, 0};
        lse2[r] = valid ? p.lse2[tile * kTile + within] : -kNegativeInfinity;
        delta[r] = valid ? p.delta[tile * kTile + within] : 0.f;
      }
    }
    barrier_wait(s.q_full, 0);
    if (t.n_blocks > 0) {
      Ring<kKStages> k_ring, k_next;
      Ring<kVStages> v_ring;
      u32 packed[kScores / 2];
      float sc[kScores];
      barrier_wait(s.k.full, 0);
      kept_q.template read<kBlockBox>(q_rows);
      issue_scores<kBlockBox>(sc, q_rows, s.k.tile(0), kept_q);
      wgmma_wait<0>();
      fence_registers(sc);
      weigh_or_differ(sc, t, whole, do_rows, 0, v_ring);
      differ(sc, do_rows, v_ring);
      pack(packed, sc);
      for (int n = 1; n <= t.n_blocks; ++n) {
        k_next.advance();
        const bool more = n < t.n_blocks;
        // After the last tile this computes with an old one, which costs less than a branch.
        if (more) barrier_wait(s.k.full + k_next.slot, k_next.parity);
        issue_scores<kBlockBox>(sc, q_rows, s.k.tile(k_next.slot), kept_q);
        issue_sum(dq, packed, s.k.tile(k_ring.slot));
        wgmma_wait<kIsHeavy ? 0 : 1>();
        fence_registers(sc);
        if (more) weigh_or_differ(sc, t, whole, do_rows, n, v_ring);
        wgmma_wait<0>();
        fence_registers(dq);
        s.k.release(k_ring.slot);
        k_ring.advance();
        if (more) differ(sc, do_rows, v_ring);
        pack(packed, sc);
      }
    }
    write_rows<kBlockBox>(p, dq, p.scale, s.q + wg * kBoxBytes, map, p.dq, 1 + wg, first_row,
                          t.s.q_end, t.head, t.batch);
  }
};

}  // namespace q

// Grid n_units_q · b · hq of kThreads threads.
extern "C" __global__ void __launch_bounds__(q::kThreads, 1)
    attention_bwd_q(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                    const __grid_constant__ TensorMap v, const __grid_constant__ TensorMap d_o,
                    const __grid_constant__ TensorMap dq, const AttentionBwdParams p) {
  extern __shared__ char smem[];
  const q::Shared s(smem);
  const u32 warp = uniform(threadIdx.x / 32);
  if (threadIdx.x == 0) {
    barrier_init(s.q_full, 1);
    s.k.init(4 * q::kConsumers), s.v.init(4 * q::kConsumers);
    barrier_init_fence();
  }
  begin_side_by_side(p);
  __syncthreads();
  if (warp < 4) {
    give_registers<24>();
    if (warp == 0 && elect_one()) {
      q::Producer producer{p, s, &q, &k, &v, &d_o};
      producer.run();
      end_side_by_side(p);
    }
  } else {
    take_registers<240>();
    q::Consumer consumer{p, s, warp / 4 - 1};
    consumer.run(&dq);
  }
}

}  // namespace tegula::cuda
