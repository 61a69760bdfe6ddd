// Gradients of attention for head_dim above 128, and below for scores that take many registers
// (others: attention_bwd_sm90.cu).
//
//   P = exp(score - lse),  dV = Pᵀ dO,  dS = P ∘ (dO Vᵀ - delta),  delta = Σ_d O ∘ dO
//   dK = scale · dSᵀ Q,  dQ = scale · dS K
// Operands, rounding and the kernel before as in attention_bwd_sm90.cu. All gradients have the same
// bits in every run, and the workspace holds no more than delta and lse.
//
// With rows this wide a block has registers for the sums of 64 keys only. Were dQ made there too,
// each 64 × 64 tile of scores would bring 64 KB of Q and dO and add 64 KB of dQ in L2, twice what
// L2 gives in the time of its five products. So there are two kernels, of four and three products:
// attention_bwd_q (attention_bwd_q.cuh) makes dQ, and attention_bwd_kv the rest. Its block owns 64
// keys. One warpgroup makes Sᵀ = K Qᵀ and from it Pᵀ, and sums dV; the other makes dPᵀ = V dOᵀ,
// takes Pᵀ from the first by way of shared memory, and sums dK. Each issues its sum and then the
// scores of the next tile, while the other computes. Sums come first because they free a slot of
// the ring: there is room for two tiles only, and so the next load has a whole step's time.
//
// Variant, by -D: TEGULA_HEAD_DIM 64 | 96 | 128 | 192 | 256; TEGULA_F16 0 | 1; attention_score.cuh.
#include "tegula/kernels/cuda/attention_bwd_q.cuh"

namespace tegula::cuda {

namespace kv {

constexpr int kStages = kD == 256 ? 2 : 3;
// Columns of K and of V in registers, in steps of 16: as many as there is room for.
constexpr int kKeptSteps = kIsHeavy ? 0 : kD == 256 ? 8 : 12;
using Unit = KeyUnit<kTile>;
// A weight is at most 1, unless a user's score has any slope. dS, which is rounded to f16 itself,
// of weights that were would have twice the error.
constexpr bool kHandsOverF32 = kHasUserScore || TEGULA_F16;
enum : u32 { kWeightsFull = 1, kWeightsFree = 2, kOwn = 3 };  // named barriers; two of kOwn

struct Shared {
  char *k, *v;  // [kBoxes][64][64]
  Passing<kStages> q, d_o;
  uint4* weights;  // [4 or 8][128 threads]: what dS is made of, as f16 (or f32); two to a register
  u32* kept;       // [128 threads]
  float *lse2, *delta;  // [kStages][64]
  Barrier* kv_full;

  __device__ explicit Shared(char* base) {
    char* at = base + ((1024 - (smem_address(base) & 1023)) & 1023);
    k = at, at += kTileBytes;
    v = at, at += kTileBytes;
    q.tiles = at, at += kStages * kTileBytes;
    d_o.tiles = at, at += kStages * kTileBytes;
    weights = reinterpret_cast<uint4*>(at), at += kTile * kTile * 4;
    kept = reinterpret_cast<u32*>(at), at += 128 * 4;
    lse2 = reinterpret_cast<float*>(at), at += kStages * kTile * 4;
    delta = reinterpret_cast<float*>(at), at += kStages * kTile * 4;
    kv_full = reinterpret_cast<Barrier*>(at);
    q.full = kv_full + 1, q.free = q.full + kStages;
    d_o.full = q.free + kStages, d_o.free = d_o.full + kStages;
  }
};

// A unit's tiles as they pass by. Without a mask units begin with different ones: they would all
// ask L2 for the same tile at once.
struct Pass {
  int first, begin, end;
  __device__ explicit Pass(const Unit& t) : first(t.first_m), begin(t.first_m), end(t.end_m) {
    if (!kMayLeak) first += t.unit % max(1, end - begin);
  }
  __device__ void advance(int& m, int& head) const {
    if (++m == end) m = begin;
    head += m == first;
  }
};

struct Producer {
  const AttentionBwdParams& p;
  const Shared& s;
  const TensorMap *q_map, *k_map, *v_map, *do_map;

  __device__ void run() {
    const Unit t(p, blockIdx.x);
    const int key = t.key;
    Ring<kStages> ring;
    barrier_arrive_expect(s.kv_full, 2 * kTileBytes);
    load_block(s.k, 1, k_map, s.kv_full, key, t.head, t.batch);
    load_block(s.v, 1, v_map, s.kv_full, key, t.head, t.batch);
    const Pass tiles(t);
    const int n_steps = t.n_steps(p);
    for (int i = 0, head = t.head * p.group, m = tiles.first; i < n_steps; ++i) {
      load_rows(p, s.q, s.lse2, ring, q_map, p.lse2, t, m, head);
      load_rows(p, s.d_o, s.delta, ring, do_map, p.delta, t, m, head);
      ring.advance();
      tiles.advance(m, head);
    }
  }
};

// Sᵀ, Pᵀ and dV: 64 keys of rows, 64 queries of columns.
struct Weigher {
  const AttentionBwdParams& p;
  const Shared& s;
  float dv[kOut];
  float sc[kScores];

  // Scores of query tile m to weights; leaves what the other warpgroup is to have in sc and kept.
  __device__ void weigh(u32 (&packed)[kScores / 2], u32& kept, const Unit& t, const Range& whole,
                        int key, int head, int m, u32 slot) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const int own_key = key + int(warp * 16 + lane / 4);
    const int first_row = t.s.q_begin + m * kTile, row = first_row + 2 * int(lane % 4);
    const EightFrom lse2{s.lse2 + slot * kTile + 2 * (lane % 4)};
    const AttentionScore score = scores_of(p, t.s, t.batch, head);
    const SeenKeys seen(score, own_key);
    kept = kept_transposed<kScores>(score, row, own_key);
    count_transposed<kScores, false>(p, score, row, own_key);
    if (first_row >= whole.lo && first_row + kTile <= whole.hi)
      weigh_transposed<false>(sc, PackInto{packed}, kept, score, seen, lse2, row, own_key,
                              p.scale_log2);
    else
      weigh_transposed<true>(sc, PackInto{packed}, kept, score, seen, lse2, row, own_key,
                             p.scale_log2);
  }

  // To the other warpgroup, whose threads hold the same elements.
  __device__ void hand_over(u32 kept, bool first) {
    const u32 thread = threadIdx.x % 128;
    if (!first) named_sync(kWeightsFree, 256);
    if constexpr (kHandsOverF32) {
#pragma unroll
      for (int j = 0; j < 8; ++j)
        reinterpret_cast<float4*>(s.weights)[j * 128 + thread] =
            make_float4(sc[4 * j], sc[4 * j + 1], sc[4 * j + 2], sc[4 * j + 3]);
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float* x = sc + 8 * j;
        s.weights[j * 128 + thread] = make_uint4(pack_f16(x[0], x[1]), pack_f16(x[2], x[3]),
                                                 pack_f16(x[4], x[5]), pack_f16(x[6], x[7]));
      }
    }
    if constexpr (kHasDropout) s.kept[thread] = kept;
    tell_named(kWeightsFull, 256);
  }

  __device__ void run(const TensorMap* map) {
    const Unit t(p, blockIdx.x);
    const int key = t.key, n_steps = t.n_steps(p);
    Ring<kStages> ring, next;
#pragma unroll
    for (int i = 0; i < kOut; ++i) dv[i] = 0.f;
    barrier_wait(s.kv_full, 0);
    if (n_steps > 0) {
      KeptRows<kKeptSteps> k;
      k.read<kBoxBytes>(s.k);
      const Range whole = t.seen_by(p, key);
      u32 packed[kScores / 2], kept;
      const Pass tiles(t);
      int head = t.head * p.group, m = tiles.first;
      barrier_wait(s.q.full, 0);
      issue_scores<kBoxBytes>(sc, s.k, s.q.tile(0), k);
      wgmma_wait<0>();
      fence_registers(sc);
      for (int i = 0; i < n_steps; ++i) {
        weigh(packed, kept, t, whole, key, head, m, ring.slot);
        s.q.release(ring.slot);
        hand_over(kept, i == 0);
        barrier_wait(s.d_o.full + ring.slot, ring.parity);
        issue_sum(dv, packed, s.d_o.tile(ring.slot));
        tiles.advance(m, head);
        next.advance();
        // After the last tile this computes with an old one, which costs less than a branch.
        if (i + 1 < n_steps) barrier_wait(s.q.full + next.slot, next.parity);
        issue_scores<kBoxBytes>(sc, s.k, s.q.tile(next.slot), k);
        wgmma_wait<1>();
        fence_registers(dv);
        s.d_o.release(ring.slot);
        ring.advance();
        wgmma_wait<0>();
        fence_registers(sc);
      }
    }
    // Only this warpgroup has read K.
    write_rows<kBoxBytes>(p, dv, 1.f, s.k, map, p.dv, kOwn, key, t.s.k_end, t.head, t.batch);
  }
};

// dPᵀ, dSᵀ and dK.
struct Differ {
  const AttentionBwdParams& p;
  const Shared& s;
  float dk[kOut];
  float dp[kScores];

  // dSᵀ in place of dPᵀ.
  __device__ void differ(u32 slot, bool last) {
    const u32 thread = threadIdx.x % 128;
    named_sync(kWeightsFull, 256);
    constexpr int kQuads = kHandsOverF32 ? 8 : 4;
    uint4 w[kQuads];
    u32 kept = ~0u;
#pragma unroll
    for (int j = 0; j < kQuads; ++j) w[j] = s.weights[j * 128 + thread];
    if constexpr (kHasDropout) kept = s.kept[thread];
    if (!last) tell_named(kWeightsFree, 256);
    const float* delta = s.delta + slot * kTile + 2 * (thread % 4);
#pragma unroll
    for (int i = 0; i < kTile / 8; ++i) {
      const float2 d = *reinterpret_cast<const float2*>(delta + 8 * i);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int e = 4 * i + 2 * r;
        float2 weight;
        if constexpr (kHandsOverF32)
          weight = {__uint_as_float((&w[i].x)[2 * r]), __uint_as_float((&w[i].x)[2 * r + 1])};
        else
          weight = unpack_f16((&w[i / 2].x)[i % 2 * 2 + r]);
        dp[e] = d_score(weight.x, dp[e], d.x, kept, e, p.f.keep_factor);
        dp[e + 1] = d_score(weight.y, dp[e + 1], d.y, kept, e + 1, p.f.keep_factor);
      }
    }
  }

  __device__ void run(const TensorMap* map) {
    const Unit t(p, blockIdx.x);
    const int key = t.key, n_steps = t.n_steps(p);
    Ring<kStages> ring, next;
#pragma unroll
    for (int i = 0; i < kOut; ++i) dk[i] = 0.f;
    barrier_wait(s.kv_full, 0);
    if (n_steps > 0) {
      KeptRows<kKeptSteps> v;
      v.read<kBoxBytes>(s.v);
      u32 packed[kScores / 2];
      barrier_wait(s.d_o.full, 0);
      issue_scores<kBoxBytes>(dp, s.v, s.d_o.tile(0), v);
      wgmma_wait<0>();
      fence_registers(dp);
      for (int i = 0; i < n_steps; ++i) {
        differ(ring.slot, i + 1 == n_steps);
        s.d_o.release(ring.slot);
        pack(packed, dp);
        barrier_wait(s.q.full + ring.slot, ring.parity);
        issue_sum(dk, packed, s.q.tile(ring.slot));
        next.advance();
        if (i + 1 < n_steps) barrier_wait(s.d_o.full + next.slot, next.parity);
        issue_scores<kBoxBytes>(dp, s.v, s.d_o.tile(next.slot), v);
        wgmma_wait<1>();
        fence_registers(dk);
        s.q.release(ring.slot);
        ring.advance();
        wgmma_wait<0>();
        fence_registers(dp);
      }
    }
    // Only this warpgroup has read V.
    write_rows<kBoxBytes>(p, dk, p.scale, s.v, map, p.dk, kOwn + 1, key, t.s.k_end, t.head,
                          t.batch);
  }
};

}  // namespace kv

}  // namespace tegula::cuda

using namespace tegula::cuda;

// Grid n_units_k · b · hk of 384 threads.
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attention_bwd_kv(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                     const __grid_constant__ TensorMap v, const __grid_constant__ TensorMap d_o,
                     const __grid_constant__ TensorMap dk, const __grid_constant__ TensorMap dv,
                     const AttentionBwdParams p) {
  extern __shared__ char smem[];
  const kv::Shared s(smem);
  const u32 warp = uniform(threadIdx.x / 32);
  if (threadIdx.x == 0) {
    barrier_init(s.kv_full, 1);
    s.q.init(8), s.d_o.init(8);
    barrier_init_fence();
  }
  begin_side_by_side(p);
  __syncthreads();
  if (warp < 4) {
    give_registers<kD == 256 ? 24 : 40>();
    if (warp == 0 && elect_one()) {
      kv::Producer producer{p, s, &q, &k, &v, &d_o};
      producer.run();
      end_side_by_side(p);
    }
  } else if (warp < 8) {
    take_registers<kD == 256 ? 240 : 232>();
    kv::Weigher weigher{p, s};
    weigher.run(&dv);
  } else {
    take_registers<kD == 256 ? 240 : 232>();
    kv::Differ differ{p, s};
    differ.run(&dk);
  }
}
