// Gradients of attention for bf16 on Hopper, by recomputation of the weights.
//
//   P = exp(scale · Q Kᵀ - lse),  dV = Pᵀ dO,  dS = P ∘ (dO Vᵀ - delta),  delta = Σ_d O ∘ dO
//   dK = scale · dSᵀ Q,  dQ = scale · dS K
// Shapes as in attention_sm90.cu; grouped query heads are summed into their KV head inside a block.
// f32 scores and sums; P and dS rounded to bf16 before their products. dK and dV have the same bits
// in every run; dQ is summed over key tiles by f32 additions in L2, in no fixed order or, for the
// same bits in every run, in that of the keys (attention_bwd_order.cuh).
//
// A block owns 128 keys of one KV head; K and V stay in shared memory, and two warpgroups of 64
// keys each keep their rows of dK and dV in registers while tiles of 64 queries pass by. Scores are
// computed transposed, Sᵀ = K Qᵀ, so that Pᵀ and dSᵀ are the register operands of the products that
// sum dV and dK; only dS goes through shared memory, for dQ. Each step keeps the tensor cores fed
// while a warpgroup computes: dO Vᵀ runs during the exponentials, Pᵀ dO while dS is made, and dSᵀ Q
// while dQ is handed over.
//
// Three kernels: attention_bwd_before (delta, padded lse, zeroes for dQ), attention_bwd_sm90,
// attention_bwd_after (dQ to bf16); in order, there is no need of zeroes nor of the last.
// Sources: FlashAttention-2 (Dao 2023), Alg. 2; FlashAttention-3 (Shah et al. 2024), App. B.
//
// Variant, by -D: TEGULA_HEAD_DIM 64 | 96 | 128; TEGULA_ORDERED 0 | 1; TEGULA_F16 0 | 1;
// attention_score.cuh.
#include "tegula/kernels/cuda/attention_bwd_order.cuh"

namespace tegula::cuda {

static_assert(kD <= 128);

constexpr int kTileM = kTile;  // queries of a tile
constexpr int kTileN = 128;    // keys of a block
constexpr int kRows = 64;      // keys of a warpgroup
constexpr int kStages = kD == 64 ? 4 : 2;
using Unit = KeyUnit<kTileN>;
constexpr int kKvBox = kTileN * kRowBytes;
constexpr int kKvBytes = kBoxes * kKvBox;
constexpr int kDsBytes = kTileN * kTileM * 2;
constexpr int kDsTiles = 3;
constexpr int kDqFloats = kTileM * kD;
// A tile of dQ: half of its columns from each warpgroup, or all of it from each in turn.
constexpr bool kTakesTurns = kD < 128;
constexpr int kDqColumns = kTakesTurns ? kD : 64;  // of a warpgroup

struct Shared {
  char *k, *v;  // [kBoxes][kTileN][64]
  Passing<kStages> q, d_o;
  char* ds;             // [kDsTiles][kTileN][kTileM]: dSᵀ
  float *lse2, *delta;  // [kStages][kTileM]
  Barrier* kv_full;
  Barrier* ds_full;  // [kDsTiles]
  DqTurns<kDsTiles> turns;
  u32* ticket;

  __device__ explicit Shared(char* base) {
    char* p = base;
    k = p, p += kKvBytes;
    v = p, p += kKvBytes;
    q.tiles = p, p += kStages * kTileBytes;
    d_o.tiles = p, p += kStages * kTileBytes;
    ds = p, p += kDsTiles * kDsBytes;
    turns.sum = reinterpret_cast<float*>(p), p += kOrdered ? kDqFloats * 4 : 0;
    lse2 = reinterpret_cast<float*>(p), p += kStages * kTileM * 4;
    delta = reinterpret_cast<float*>(p), p += kStages * kTileM * 4;
    kv_full = reinterpret_cast<Barrier*>(p);
    q.full = kv_full + 1, q.free = q.full + kStages;
    d_o.full = q.free + kStages, d_o.free = d_o.full + kStages;
    ds_full = d_o.free + kStages;
    turns.turn = ds_full + kDsTiles, turns.added = turns.turn + kDsTiles;
    turns.told = turns.added + kDsTiles;
    turns.sum_full = turns.told + kDsTiles;
    ticket = reinterpret_cast<u32*>(turns.sum_full + 1);
    turns.at = reinterpret_cast<DqTurn*>(ticket + 1);
  }
};

// A query head and a tile of its rows.
struct Step {
  int head, m;
};

// ---- Producer ----------------------------------------------------------------------------------

struct Producer {
  const AttentionBwdParams& p;
  const Shared& s;
  const TensorMap *q_map, *k_map, *v_map, *do_map;

  __device__ void load_kv(const Unit& t) {
    barrier_arrive_expect(s.kv_full, 2 * kKvBytes);
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      const int at = box * kKvBox, column = box * kBoxColumns;
      tma_load(s.k + at, k_map, s.kv_full, kEvictFirst, column, t.key, t.head, t.batch);
      tma_load(s.v + at, v_map, s.kv_full, kEvictFirst, column, t.key, t.head, t.batch);
    }
  }

  __device__ void run(const Unit& t, const DqPass& tiles) {
    Ring<kStages> ring;
    load_kv(t);
    for (int head = t.head * p.group; head < (t.head + 1) * p.group; ++head)
      for (int m = tiles.first; m != tiles.past; m += tiles.next) {
        load_rows(p, s.q, s.lse2, ring, q_map, p.lse2, t, m, head);
        load_rows(p, s.d_o, s.delta, ring, do_map, p.delta, t, m, head);
        ring.advance();
      }
  }
};

// ---- Consumer ----------------------------------------------------------------------------------

struct Consumer {
  static constexpr int kDq = kDqColumns / 2;
  // Where there are registers: K and V as operands, and lse and delta before they are needed.
  static constexpr int kKeptSteps = kD == 64 ? kD / 16 : 0;
  static constexpr int kAhead = kD == 64 ? kTile / 8 : 0;
  // As late as possible is better, but here the assembler would serialize the products.
  static constexpr bool kWaitsEarly = kOrdered && kD == 64 && kIsPacked;

  const AttentionBwdParams& p;
  const Shared& s;
  const TensorMap *dk_map, *dv_map;
  u32 wg, lane, warp;
  float* dq_place;  // of this thread in the first tile of dQ

  float dk[kOut], dv[kOut];  // [64 keys][kD]
  float sc[kScores];         // Sᵀ, then Pᵀ [64 keys][kTileM]
  u32 packed[kScores / 2];   // Pᵀ in 16 bits
  KeptRows<kKeptSteps> kept_k, kept_v;
  float2 lse2_ahead[kAhead + 1];

  // This warpgroup's of K or V.
  __device__ const char* rows_of(const char* block) const {
    return block + wg * (kRows * kRowBytes);
  }

  // dq[kTileM][kDqColumns] = dS[kTileM][kTileN] · K[kTileN][kDqColumns]
  __device__ void issue_dq(float (&dq)[kDq], const char* ds) {
    const TileOperand a(smem_address(ds), 16, 8 * kRowBytes);
    const TileOperand b(smem_address(s.k) + (kTakesTurns ? 0 : wg * kKvBox), kTileN * kRowBytes,
                        8 * kRowBytes);
    fence_registers(dq);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kTileN / 16; ++i)
      Wgmma<kDqColumns>::template ss<true>(dq, a.at(i * 16 * kRowBytes), b.at(i * 16 * kRowBytes),
                                           i > 0);
    wgmma_commit();
  }

  // Step i, a tile of queries whose Sᵀ is in `sc`; leaves that of the next tile there, and makes dQ
  // of the step before, so that neither warpgroup waits for the other's dS. No product is
  // outstanding at either end: the assembler cannot follow one around a loop.
  template <bool kMasked, bool kMakesDq>
  __device__ void step(const Unit& t, const Step& at, int tile_before,
                       const Ring<kDsTiles>& ds_ring, int i, int n_steps, Ring<kStages>& ring) {
    const u32 slot = ring.slot, parity = ring.parity;
    const char *q = s.q.tile(slot), *d_o = s.d_o.tile(slot);
    float dp[kScores];  // dPᵀ [64 keys][kTileM]
    barrier_wait(s.d_o.full + slot, parity);
    issue_scores<kKvBox>(dp, rows_of(s.v), d_o, kept_v);
    {
      const int row = t.s.q_begin + at.m * kTileM + 2 * int(lane % 4);
      const int key = t.key + int(wg * kRows + warp * 16 + lane / 4);
      const AttentionScore score = scores_of(p, t.s, t.batch, at.head);
      count_transposed<kScores, true>(p, score, row, key);
      const EightFrom rest{s.lse2 + slot * kTileM + 2 * (lane % 4)};
      const auto lse2 = [&](int i) { return i < kAhead ? lse2_ahead[i] : rest(i); };
      weigh_transposed<kMasked>(sc, PackInto{packed}, ~0u, score, SeenKeys(score, key), lse2, row,
                                key, p.scale_log2);
    }
    issue_sum(dv, packed, d_o);
    const EightFrom delta{s.delta + slot * kTileM + 2 * (lane % 4)};
    float2 delta_ahead[kAhead + 1];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) delta_ahead[j] = delta(j);
    wgmma_wait<1>();  // dPᵀ
    fence_registers(dp);

    u32 ds[kScores / 2];  // dSᵀ in 16 bits
#pragma unroll
    for (int j = 0; j < kTileM / 8; ++j) {
      const float2 d = j < kAhead ? delta_ahead[j] : delta(j);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int e = 4 * j + 2 * r;
        ds[e / 2] = pack_element(d_score(sc[e], dp[e], d.x, ~0u, e, p.f.keep_factor),
                                 d_score(sc[e + 1], dp[e + 1], d.y, ~0u, e + 1, p.f.keep_factor));
      }
    }
    // The other warpgroup has also made dQ of three steps ago, whose place is taken now.
    wait_before(ds_ring, s.ds_full);
    char* ds_tile = s.ds + ds_ring.slot * kDsBytes;
#pragma unroll
    for (int j = 0; j < kTileM / 16; ++j) {
      const u32 row = wg * kRows + 16 * warp + (lane & 15), chunk = 2 * j + (lane >> 4);
      stmatrix(smem_address(ds_tile) + swizzled(row, chunk), ds[4 * j], ds[4 * j + 1],
               ds[4 * j + 2], ds[4 * j + 3]);
    }

    float dq[kDq];  // [kTileM][kDqColumns]
    if (kMakesDq && kWaitsEarly) wait_before(ds_ring, s.turns.turn);
    if (kMakesDq) issue_dq(dq, s.ds + before(ds_ring) * kDsBytes);
    issue_sum(dk, ds, q);
    wgmma_wait<1 + kMakesDq>();  // dV: the registers of its weights are needed
    fence_registers(dv);
    s.d_o.release(slot);
    fence_async_proxy();
    release_barrier(s.ds_full + ds_ring.slot);
    // Before the next scores, so that the additions have read their registers when dPᵀ wants them.
    if (kMakesDq) {
      wgmma_wait<1>();  // dQ
      fence_registers(dq);
      if (kOrdered && !kWaitsEarly) wait_before(ds_ring, s.turns.turn);
      hand_over_dq(dq, t, tile_before, ds_ring);
    }
    // After the last step this recomputes an old tile, which costs less than a branch here.
    ring.advance();
    if (i + 1 < n_steps) barrier_wait(s.q.full + ring.slot, ring.parity);
    float next[kScores];
    issue_scores<kKvBox>(next, rows_of(s.k), s.q.tile(ring.slot), kept_k);
    read_ahead(ring.slot);
    wgmma_wait<0>();
    fence_registers(next);
    fence_registers(dk);
    s.q.release(slot);
#pragma unroll
    for (int j = 0; j < kScores; ++j) sc[j] = next[j];
  }

  __device__ static u32 before(const Ring<kDsTiles>& r) {
    return r.slot == 0 ? kDsTiles - 1 : r.slot - 1;
  }
  __device__ static void wait_before(const Ring<kDsTiles>& r, Barrier* barriers) {
    barrier_wait(barriers + before(r), r.slot == 0 ? r.parity ^ 1 : r.parity);
  }
  // Reads the next tile, before the products that it has to wait for are done.
  __device__ void read_ahead(u32 slot) {
    const EightFrom lse2{s.lse2 + slot * kTileM + 2 * (lane % 4)};
#pragma unroll
    for (int j = 0; j < kAhead; ++j) lse2_ahead[j] = lse2(j);
  }
  __device__ bool makes_dq(int i) const { return !kTakesTurns || (i & 1) == int(wg); }

  template <bool kMasked>
  __device__ void any_step(const Unit& t, const Step& at, int tile_before,
                           const Ring<kDsTiles>& ds_ring, int i, int n_steps, Ring<kStages>& ring) {
    if (makes_dq(i - 1))
      step<kMasked, true>(t, at, tile_before, ds_ring, i, n_steps, ring);
    else
      step<kMasked, false>(t, at, tile_before, ds_ring, i, n_steps, ring);
  }

  // dQ of step i - 1, the last.
  __device__ void last_dq(const Unit& t, int tile_before, const Ring<kDsTiles>& ds_ring, int i) {
    if (!makes_dq(i - 1)) return;
    float dq[kDq];
    wait_before(ds_ring, s.ds_full);
    if (kOrdered) wait_before(ds_ring, s.turns.turn);
    issue_dq(dq, s.ds + before(ds_ring) * kDsBytes);
    wgmma_wait<0>();
    fence_registers(dq);
    hand_over_dq(dq, t, tile_before, ds_ring);
  }

  // Adds columns of a tile of dQ to global memory: 512 bytes in a row from a warp.
  __device__ void hand_over_dq(const float (&dq)[kDq], const Unit& t, int tile,
                               const Ring<kDsTiles>& ds_ring) {
    const u32 what = kOrdered ? uniform(s.turns.at[before(ds_ring)].what) : kAddsDq;
    if (what & kEndsDq) {
      end_dq(dq, t, s.turns.at[before(ds_ring)]);
    } else {
      float* to = dq_place + static_cast<long long>(tile) * kDqFloats;
#pragma unroll
      for (int j = 0; j < kDq / 4; ++j) {
        if (kOrdered)
          add_or_set(to + j * 512, dq + 4 * j, what == kAddsDq, what == kBeginsDq);
        else
          global_add(to + j * 512, dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
      }
    }
    if (kOrdered) release_barrier(s.turns.added + before(ds_ring));
  }

  // The sum with what is left to add, to dQ itself.
  __device__ void end_dq(const float (&dq)[kDq], const Unit& t, const DqTurn& at) {
    u32 thread = threadIdx.x % 128;
    const int m = at.m;
    const bool is_all = (at.what & kBeginsDq) != 0;
    asm volatile("" : "+r"(thread));  // not to wait in registers for the last tiles
    const float* sum = s.turns.sum + 4 * thread + (kTakesTurns ? 0 : wg * (kDqFloats / 2));
    const int row = t.s.q_begin + m * kTileM + int(thread / 32 * 16 + thread % 32 / 4);
    const int first = 2 * int(thread % 4) + (kTakesTurns ? 0 : int(wg) * kDqColumns);
    u16* to = row_of<u16>(p.dq, t.batch, row, at.head) + first;
    u32 zero = 0;
#pragma unroll
    for (int j = 0; j < kDq / 4; ++j) {
      float4 x = *reinterpret_cast<const float4*>(sum + j * 512);
      if (is_all) x = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const u32 packed = pack_element((dq[4 * j + 2 * r] + (r ? x.z : x.x)) * p.scale,
                                        (dq[4 * j + 2 * r + 1] + (r ? x.w : x.y)) * p.scale);
        if constexpr (kMayLeak) zero = times_zero_plus(packed, zero);
        const int column = first + 8 * j;
        const bool is_row = row + 8 * r < t.s.q_end;
        store_if(to + 8 * r * p.dq.row + 8 * j, packed, is_row && column + 1 < p.head_dim,
                 is_row && column + 1 == p.head_dim);
      }
    }
    if constexpr (kMayLeak) {
      if ((zero & 0x7FFF7FFF) != 0) *p.leaked = 1;
    }
  }

  __device__ void run(const Unit& t, const DqPass& tiles) {
    const int n_steps = t.n_steps(p), key = t.key + int(wg) * kRows;
    Ring<kStages> ring;
    dq_place = p.dq_sum + 4 * (warp * 32 + lane) + (kTakesTurns ? 0 : wg * (kDqFloats / 2));
#pragma unroll
    for (int i = 0; i < kOut; ++i) dk[i] = dv[i] = 0.f;
    barrier_wait(s.kv_full, 0);
    if (n_steps > 0) {
      kept_k.read<kKvBox>(rows_of(s.k)), kept_v.read<kKvBox>(rows_of(s.v));
      barrier_wait(s.q.full, 0);
      issue_scores<kKvBox>(sc, rows_of(s.k), s.q.tile(0), kept_k);
      read_ahead(0);
      wgmma_wait<0>();
      fence_registers(sc);
      // Query tiles [begin, end) see all keys of the block.
      const Range seen[2] = {t.seen_by(p, t.key), t.seen_by(p, t.key + kRows)};
      const int begin = (max(seen[0].lo, seen[1].lo) - t.s.q_begin + kTileM - 1) / kTileM;
      const int end = (min(seen[0].hi, seen[1].hi) - t.s.q_begin) / kTileM;
      int i = 0;
      int tile_before = 0;
      Ring<kDsTiles> ds_ring;
      {  // nothing yet
        uint4* rows = reinterpret_cast<uint4*>(s.ds + wg * (kDsBytes / 2));
        for (int n = warp * 32 + lane; n < kDsBytes / 32; n += 128)
          rows[n] = make_uint4(0, 0, 0, 0);
        fence_async_proxy();
        release_barrier(s.ds_full);
        ds_ring.advance();
      }
      for (int head = t.head * p.group; head < (t.head + 1) * p.group; ++head) {
        const int first_tile = static_cast<int>(t.dq_tile(p, head, 0));
        if (i == 0) tile_before = first_tile + tiles.first;  // adds zeros
        for (int m = tiles.first; m != tiles.past; m += tiles.next, ++i) {
          const Step at{head, m};
          if (m >= begin && m < end)
            any_step<false>(t, at, tile_before, ds_ring, i, n_steps, ring);
          else
            any_step<true>(t, at, tile_before, ds_ring, i, n_steps, ring);
          tile_before = first_tile + m;
          ds_ring.advance();
        }
      }
      last_dq(t, tile_before, ds_ring, i);
    }
    named_sync(3, 256);  // both warpgroups have read all of K
    write_rows<kKvBox>(p, dv, 1.f, s.v + wg * (kRows * kRowBytes), dv_map, p.dv, 4 + wg, key,
                       t.s.k_end, t.head, t.batch);
    write_rows<kKvBox>(p, dk, p.scale, s.k + wg * (kRows * kRowBytes), dk_map, p.dk, 4 + wg, key,
                       t.s.k_end, t.head, t.batch);
  }
};

}  // namespace tegula::cuda

using namespace tegula::cuda;

// Grid n_units_k · b · hk of 384 threads.
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attention_bwd_sm90(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                       const __grid_constant__ TensorMap v, const __grid_constant__ TensorMap d_o,
                       const __grid_constant__ TensorMap dk, const __grid_constant__ TensorMap dv,
                       const AttentionBwdParams p) {
  extern __shared__ __align__(1024) char smem[];
  const Shared s(smem);
  const u32 warp = uniform(threadIdx.x / 32);
  if (threadIdx.x == 0) {
    barrier_init(s.kv_full, 1);
    s.q.init(8), s.d_o.init(8);
    for (int i = 0; i < kDsTiles; ++i) barrier_init(s.ds_full + i, 8 * kArrivals);
    if (kOrdered) s.turns.init(kTakesTurns ? 4 : 8);
    barrier_init_fence();
  }
  if (kOrdered && threadIdx.x == 0) *s.ticket = atomicAdd(p.ticket, 1);
  __syncthreads();
  const UnitPlace at(p, kOrdered ? uniform(*s.ticket) : blockIdx.x);
  const Unit t(p, at);
  const DqPass tiles(t, at.rises);
  if (warp < 4) {
    give_registers<24>();
    if (warp == 0) {
      Producer producer{p, s, &q, &k, &v, &d_o};
      if (elect_one()) producer.run(t, tiles);
    } else if (kOrdered && threadIdx.x == 32) {
      ask_for_turns(p, s.turns, t, tiles);
    } else if (kOrdered && threadIdx.x == 64) {
      if (t.n_steps(p) > 0) tell_turns(p, s.turns, t, tiles);
    }
  } else {
    take_registers<240>();
    Consumer consumer{p, s, &dk, &dv, warp / 4 - 1, threadIdx.x % 32, warp % 4};
    consumer.run(t, tiles);
  }
}

#if !TEGULA_ORDERED
// Grid (n_tiles_m, b · hq) of 256 threads: dQ out of the order of the fragments, by way of shared
// memory so that whole lines are written. Eight columns of a tile lie together, as 128 float4; the
// thread whose they were is the place among them.
extern "C" __global__ void attention_bwd_after(const AttentionBwdParams p) {
  constexpr int kPitch = kD + 8;   // 16-bit elements; rows start four banks apart
  constexpr int kChunks = kD / 8;  // of 8 columns
  __shared__ __align__(16) u16 tile[kTileM * kPitch];
  const int thread = threadIdx.x % 128;
  const int batch = blockIdx.y / p.n_heads_q, head = blockIdx.y % p.n_heads_q;
  const long long index = static_cast<long long>(blockIdx.y) * gridDim.x + blockIdx.x;
  const float4* from = reinterpret_cast<const float4*>(p.dq_sum + index * kDqFloats) + thread;
  u16* place = tile + (thread / 32 * 16 + thread % 32 / 4) * kPitch + 2 * (thread % 4);
  u32 zero = 0;
#pragma unroll
  for (int chunk = threadIdx.x / 128; chunk < kChunks; chunk += 2) {
    const float4 x = from[chunk * 128];
    u16* at = place + 8 * chunk;
    const u32 above = pack_element(x.x * p.scale, x.y * p.scale);
    const u32 below = pack_element(x.z * p.scale, x.w * p.scale);
    *reinterpret_cast<u32*>(at) = above, *reinterpret_cast<u32*>(at + 8 * kPitch) = below;
    if constexpr (kMayLeak) zero = times_zero_plus(below, times_zero_plus(above, zero));
  }
  if ((zero & 0x7FFF7FFF) != 0) *p.leaked = 1;
  const Range rows = rows_of_slot(p, blockIdx.x);
  __syncthreads();
  for (int i = threadIdx.x; i < kTileM * kChunks; i += 256) {
    const int r = i / kChunks, column = i % kChunks * 8, row = rows.lo + r;
    if (row >= rows.hi || column >= p.head_dim) continue;
    u16* to = p.dq.data + batch * p.dq.batch + row * p.dq.row + head * p.dq.head + column;
    const u16* x = tile + r * kPitch + column;
    if (column + 8 <= p.head_dim)
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(x);
    else
      for (int c = 0; column + c < p.head_dim; ++c) to[c] = x[c];
  }
}
#endif
