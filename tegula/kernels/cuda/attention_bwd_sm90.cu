// Gradients of attention for bf16 on Hopper, by recomputation of the weights.
//
//   P = exp(scale · Q Kᵀ - lse),  dV = Pᵀ dO,  dS = P ∘ (dO Vᵀ - delta),  delta = Σ_d O ∘ dO
//   dK = scale · dSᵀ Q,  dQ = scale · dS K
// Shapes as in attention_sm90.cu; grouped query heads are summed into their KV head inside a block.
// f32 scores and sums; P and dS rounded to bf16 before their products. dK and dV have the same bits
// in every run; dQ is summed over key tiles by f32 additions in L2, whose order is not fixed.
//
// A block owns 128 keys of one KV head; K and V stay in shared memory, and two warpgroups of 64
// keys each keep their rows of dK and dV in registers while tiles of 64 queries pass by. Scores are
// computed transposed, Sᵀ = K Qᵀ, so that Pᵀ and dSᵀ are the register operands of the products that
// sum dV and dK; only dS goes through shared memory, for dQ. Each step keeps the tensor cores fed
// while a warpgroup computes: dO Vᵀ runs during the exponentials, Pᵀ dO while dS is made, and dSᵀ Q
// and the next tile's scores while dQ is handed over.
//
// Three kernels: attention_bwd_before (delta, padded lse, zeroes for dQ), attention_bwd_sm90,
// attention_bwd_after (dQ to bf16).
// Sources: FlashAttention-2 (Dao 2023), Alg. 2; FlashAttention-3 (Shah et al. 2024), App. B.
//
// Variant, by -D: TEGULA_HEAD_DIM 64 | 128, TEGULA_CAUSAL 0 | 1.
#include "tegula/kernels/cuda/attention_params.h"
#include "tegula/kernels/cuda/ptx/mbarrier.cuh"
#include "tegula/kernels/cuda/ptx/sync.cuh"
#include "tegula/kernels/cuda/ptx/tma.cuh"
#include "tegula/kernels/cuda/ptx/wgmma.cuh"

namespace tegula::cuda {

constexpr int kD = TEGULA_HEAD_DIM;
constexpr bool kIsCausal = TEGULA_CAUSAL;
static_assert(kD == 64 || kD == 128);

constexpr int kTileM = 64;   // queries of a tile
constexpr int kTileN = 128;  // keys of a block
constexpr int kRows = 64;    // keys of a warpgroup
constexpr int kBoxes = kD / kBoxColumns;
constexpr int kThreads = 384;
constexpr int kStages = kD == 64 ? 4 : 2;
constexpr int kKvBytes = kTileN * kD * 2;
constexpr int kQBytes = kTileM * kD * 2;
constexpr int kDsBytes = kTileN * kTileM * 2;
constexpr int kDqFloats = kTileM * kD;
// A tile of dQ: half of its columns from each warpgroup, or all of it from each in turn.
constexpr bool kTakesTurns = kBoxes == 1;
constexpr float kLog2e = 1.44269504f;

struct Shared {
  char *k, *v;          // [kBoxes][kTileN][64]
  char *q, *d_o;        // [kStages][kBoxes][kTileM][64]
  char* ds;             // [2][kTileN][kTileM]: dSᵀ
  float *lse2, *delta;  // [kStages][kTileM]
  Barrier* kv_full;
  Barrier *q_full, *q_free;    // [kStages]
  Barrier *do_full, *do_free;  // [kStages]

  __device__ explicit Shared(char* base) {
    char* p = base + ((1024 - (smem_address(base) & 1023)) & 1023);
    k = p, p += kKvBytes;
    v = p, p += kKvBytes;
    q = p, p += kStages * kQBytes;
    d_o = p, p += kStages * kQBytes;
    ds = p, p += 2 * kDsBytes;
    lse2 = reinterpret_cast<float*>(p), p += kStages * kTileM * 4;
    delta = reinterpret_cast<float*>(p), p += kStages * kTileM * 4;
    kv_full = reinterpret_cast<Barrier*>(p);
    q_full = kv_full + 1, q_free = q_full + kStages;
    do_full = q_free + kStages, do_free = do_full + kStages;
  }
};

// The block's keys [key, key + kTileN) of a KV head, and the query tiles that see any of them.
struct Tile {
  int key, head, batch;
  int first_m;  // of every query head of the group
  int n_steps;

  __device__ explicit Tile(const AttentionBwdParams& p) {
    const int section_tiles = p.heads_per_section * p.n_tiles_n;
    const int section = blockIdx.x / section_tiles;
    const int within = blockIdx.x - section * section_tiles;
    const int first_head = section * p.heads_per_section;
    const int heads = min(p.heads_per_section, p.heads_total - first_head);
    const int n = within / heads;
    const int head_of_all = first_head + within - n * heads;
    batch = head_of_all / p.n_heads_kv;
    head = head_of_all - batch * p.n_heads_kv;
    key = n * kTileN;
    first_m = 0;
    if (kIsCausal) first_m = max(0, key + p.seqlen_q - p.seqlen_k) / kTileM;
    n_steps = max(0, p.n_tiles_m - first_m) * p.group;
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

  __device__ void load_kv(const Tile& t) {
    barrier_arrive_expect(s.kv_full, 2 * kKvBytes);
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      const int at = box * (kTileN * kRowBytes), column = box * kBoxColumns;
      tma_load(s.k + at, k_map, s.kv_full, kEvictFirst, column, t.key, t.head, t.batch);
      tma_load(s.v + at, v_map, s.kv_full, kEvictFirst, column, t.key, t.head, t.batch);
    }
  }

  // A tile of Q and its lse, or of dO and its delta.
  __device__ void load_rows(char* tiles, float* numbers, Barrier* full, Barrier* free,
                            Ring<kStages>& ring, const TensorMap* map, const float* from,
                            const Tile& t, const Step& step) {
    const u32 slot = ring.slot;
    barrier_wait(free + slot, ring.parity ^ 1);
    barrier_arrive_expect(full + slot, kQBytes + kTileM * 4);
#pragma unroll
    for (int box = 0; box < kBoxes; ++box)
      tma_load(tiles + slot * kQBytes + box * (kTileM * kRowBytes), map, full + slot, kEvictLast,
               box * kBoxColumns, step.m * kTileM, step.head, t.batch);
    const long long head_of_all = t.batch * p.n_heads_q + step.head;
    bulk_load(numbers + slot * kTileM, from + (head_of_all * p.n_tiles_m + step.m) * kTileM,
              kTileM * 4, full + slot);
    ring.advance();
  }

  __device__ void run() {
    const Tile t(p);
    Ring<kStages> q_ring, do_ring;
    load_kv(t);
    for (int head = t.head * p.group; head < (t.head + 1) * p.group; ++head)
      for (int m = t.first_m; m < p.n_tiles_m; ++m) {
        const Step step{head, m};
        load_rows(s.q, s.lse2, s.q_full, s.q_free, q_ring, q_map, p.lse2, t, step);
        load_rows(s.d_o, s.delta, s.do_full, s.do_free, do_ring, do_map, p.delta, t, step);
      }
  }
};

// ---- Consumer ----------------------------------------------------------------------------------

struct Consumer {
  static constexpr int kScores = kTileM / 2;  // of a thread: 2 keys × kTileM / 4 queries
  static constexpr int kOut = kD / 2;

  const AttentionBwdParams& p;
  const Shared& s;
  const TensorMap *dk_map, *dv_map;
  u32 wg, lane, warp;

  float dk[kOut], dv[kOut];  // [64 keys][kD]
  float sc[kScores];         // Sᵀ, then Pᵀ [64 keys][kTileM]
  u32 packed[kScores / 2];   // Pᵀ as bf16

  __device__ void release(Barrier* b) {
    __syncwarp();
    if (lane == 0) barrier_arrive(b);
  }
  __device__ bool is_leader() const { return warp == 0 && lane == 0; }

  // out[64 keys][kTileM] = rows[64 of the block's keys][kD] · tile[kTileM][kD]ᵀ
  __device__ void issue_transposed(float (&out)[kScores], const char* rows, const char* tile) {
    const SmemOperand a(smem_address(rows) + wg * (kRows * kRowBytes), 16, 8 * kRowBytes);
    const SmemOperand b(smem_address(tile), 16, 8 * kRowBytes);
    fence_registers(out);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kD / 16; ++i) {
      const u32 box = i / 4, within = (i % 4) * 32;
      Wgmma<kTileM>::ss(out, a.at(box * (kTileN * kRowBytes) + within),
                        b.at(box * (kTileM * kRowBytes) + within), i > 0);
    }
    wgmma_commit();
  }

  // sum[64 keys][kD] += weights[64 keys][kTileM] · tile[kTileM][kD]
  __device__ void issue_sum(float (&sum)[kOut], const u32 (&weights)[kScores / 2],
                            const char* tile) {
    const SmemOperand b(smem_address(tile), kTileM * kRowBytes, 8 * kRowBytes);
    fence_registers(sum);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kTileM / 16; ++i)
      Wgmma<kD>::rs<true>(sum, weights + 4 * i, b.at(i * 16 * kRowBytes), true);
    wgmma_commit();
  }

  // dq[kTileM][64 columns] = dS[kTileM][kTileN] · K[kTileN][64 columns]
  __device__ void issue_dq(float (&dq)[kScores], const char* ds) {
    const SmemOperand a(smem_address(ds), 16, 8 * kRowBytes);
    const SmemOperand b(smem_address(s.k) + (kTakesTurns ? 0 : wg * (kTileN * kRowBytes)), 16,
                        8 * kRowBytes);
    fence_registers(dq);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kTileN / 16; ++i)
      Wgmma<64>::ss<true>(dq, a.at(i * 16 * kRowBytes), b.at(i * 16 * kRowBytes), i > 0);
    wgmma_commit();
  }

  // Scores to weights, by the lse of each column.
  template <bool kMasked>
  __device__ void weigh(const float* lse2, int key, int m) {
    const int end_key = p.seqlen_k;
    const int first_row = m * kTileM + 2 * int(lane % 4) + p.seqlen_k - p.seqlen_q;
#pragma unroll
    for (int i = 0; i < kTileM / 8; ++i) {
      const float2 l = *reinterpret_cast<const float2*>(lse2 + 8 * i + 2 * (lane % 4));
#pragma unroll
      for (int r = 0; r < 2; ++r)
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float& x = sc[4 * i + 2 * r + c];
          x = exp2_approx(__fmaf_rn(x, p.scale_log2, c == 0 ? -l.x : -l.y));
          if constexpr (kMasked) {
            const int k = key + 8 * r;
            if (k >= end_key || (kIsCausal && k > first_row + 8 * i + c)) x = 0.f;
          }
        }
    }
  }

  // Step i, a tile of queries whose Sᵀ is in `sc`; leaves that of the next tile there. No product
  // is outstanding at either end: the assembler cannot follow one around a loop.
  // With turns, the other warpgroup only tells that its dS is there and goes on; it cannot come
  // back to this buffer before its own turn, where it waits for this one.
  template <bool kMasked, bool kMakesDq>
  __device__ void step(const Tile& t, const Step& at, int i, Ring<kStages>& ring) {
    const u32 slot = ring.slot, parity = ring.parity;
    const char* q = s.q + slot * kQBytes;
    const char* d_o = s.d_o + slot * kQBytes;
    float dp[kScores];  // dPᵀ [64 keys][kTileM]
    barrier_wait(s.do_full + slot, parity);
    issue_transposed(dp, s.v, d_o);
    weigh<kMasked>(s.lse2 + slot * kTileM, t.key + int(wg * kRows + warp * 16 + lane / 4), at.m);
#pragma unroll
    for (int j = 0; j < kScores / 2; ++j) packed[j] = pack_bf16(sc[2 * j], sc[2 * j + 1]);
    issue_sum(dv, packed, d_o);
    wgmma_wait<1>();  // dPᵀ
    fence_registers(dp);

    u32 ds[kScores / 2];  // dSᵀ as bf16
    const float* delta = s.delta + slot * kTileM;
    char* ds_tile = s.ds + (i & 1) * kDsBytes;
#pragma unroll
    for (int j = 0; j < kTileM / 8; ++j) {
      const float2 d = *reinterpret_cast<const float2*>(delta + 8 * j + 2 * (lane % 4));
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int e = 4 * j + 2 * r;
        ds[e / 2] = pack_bf16(sc[e] * (dp[e] - d.x), sc[e + 1] * (dp[e + 1] - d.y));
      }
    }
#pragma unroll
    for (int j = 0; j < kTileM / 16; ++j) {
      const u32 row = wg * kRows + 16 * warp + (lane & 15), chunk = 2 * j + (lane >> 4);
      stmatrix(smem_address(ds_tile) + swizzled(row, chunk), ds[4 * j], ds[4 * j + 1],
               ds[4 * j + 2], ds[4 * j + 3]);
    }
    fence_async_proxy();
    if (kMakesDq)
      named_sync(kTakesTurns ? 1 + (i & 1) : 1, 256);
    else
      named_arrive(1 + (i & 1), 256);

    float dq[kScores];  // [kTileM][64]
    if (kMakesDq) issue_dq(dq, ds_tile);
    issue_sum(dk, ds, q);
    wgmma_wait<1 + kMakesDq>();  // dV: the registers of its weights are needed
    fence_registers(dv);
    release(s.do_free + slot);
    // After the last step this recomputes an old tile, which costs less than a branch here.
    ring.advance();
    if (i + 1 < t.n_steps) barrier_wait(s.q_full + ring.slot, ring.parity);
    float next[kScores];
    issue_transposed(next, s.k, s.q + ring.slot * kQBytes);
    if (kMakesDq) {
      wgmma_wait<2>();  // dQ
      fence_registers(dq);
      add_dq(dq, t, at);
    }
    wgmma_wait<0>();
    fence_registers(next);
    fence_registers(dk);
    release(s.q_free + slot);
#pragma unroll
    for (int j = 0; j < kScores; ++j) sc[j] = next[j];
  }

  template <bool kMasked>
  __device__ void any_step(const Tile& t, const Step& at, int i, Ring<kStages>& ring) {
    if (!kTakesTurns || (i & 1) == int(wg))
      step<kMasked, true>(t, at, i, ring);
    else
      step<kMasked, false>(t, at, i, ring);
  }

  // Adds 64 columns of a tile of dQ to global memory: 512 bytes in a row from a warp.
  __device__ void add_dq(const float (&dq)[kScores], const Tile& t, const Step& at) {
    const long long head_of_all = t.batch * p.n_heads_q + at.head;
    const long long dq_tile = head_of_all * p.n_tiles_m + at.m;
    float* to = p.dq_sum + dq_tile * kDqFloats + 4 * (warp * 32 + lane) +
                (kTakesTurns ? 0 : wg * (kDqFloats / 2));
#pragma unroll
    for (int j = 0; j < kScores / 4; ++j)
      global_add(to + j * 512, dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
  }

  // A sum over this warpgroup's keys to global memory, by way of shared memory that is free by now.
  __device__ void write(const float (&sum)[kOut], float factor, char* place, const TensorMap* map,
                        const Tile& t) {
    char* mine = place + wg * (kRows * kRowBytes);
#pragma unroll
    for (int i = 0; i < kD / 16; ++i) {
      const u32 row = 16 * warp + (lane & 15), chunk = 2 * i + (lane >> 4);
      const float* x = sum + 8 * i;
      stmatrix(smem_address(mine) + (chunk / 8) * (kTileN * kRowBytes) + swizzled(row, chunk % 8),
               pack_bf16(x[0] * factor, x[1] * factor), pack_bf16(x[2] * factor, x[3] * factor),
               pack_bf16(x[4] * factor, x[5] * factor), pack_bf16(x[6] * factor, x[7] * factor));
    }
    fence_async_proxy();
    named_sync(4 + wg, 128);
    if (is_leader()) {
#pragma unroll
      for (int box = 0; box < kBoxes; ++box)
        tma_store(map, mine + box * (kTileN * kRowBytes), box * kBoxColumns,
                  t.key + int(wg) * kRows, t.head, t.batch);
      tma_store_commit();
    }
  }

  __device__ void run() {
    const Tile t(p);
    Ring<kStages> ring;
#pragma unroll
    for (int i = 0; i < kOut; ++i) dk[i] = dv[i] = 0.f;
    barrier_wait(s.kv_full, 0);
    if (t.n_steps > 0) {
      barrier_wait(s.q_full, 0);
      issue_transposed(sc, s.k, s.q);
      wgmma_wait<0>();
      fence_registers(sc);
      // Query tiles from which on every row sees all keys of the block.
      int whole = t.first_m;
      if (kIsCausal)
        whole = max(whole, (t.key + kTileN - 1 + p.seqlen_q - p.seqlen_k + kTileM - 1) / kTileM);
      if (t.key + kTileN > p.seqlen_k) whole = p.n_tiles_m;
      whole = min(whole, p.n_tiles_m);
      int i = 0;
      for (int head = t.head * p.group; head < (t.head + 1) * p.group; ++head) {
        for (int m = t.first_m; m < whole; ++m) any_step<true>(t, {head, m}, i++, ring);
        for (int m = whole; m < p.n_tiles_m; ++m) any_step<false>(t, {head, m}, i++, ring);
      }
    }
    named_sync(3, 256);  // both warpgroups have read all of K
    write(dv, 1.f, s.v, dv_map, t);
    write(dk, p.scale, s.k, dk_map, t);
    if (is_leader()) tma_store_wait_read();
  }
};

__device__ inline float dot_bf16(u32 a, u32 b) {
  return __fmaf_rn(__uint_as_float(a << 16), __uint_as_float(b << 16),
                   __uint_as_float(a & 0xFFFF0000) * __uint_as_float(b & 0xFFFF0000));
}

}  // namespace tegula::cuda

using namespace tegula::cuda;

// Grid n_tiles_n · heads_total of 384 threads.
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attention_bwd_sm90(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                       const __grid_constant__ TensorMap v, const __grid_constant__ TensorMap d_o,
                       const __grid_constant__ TensorMap dk, const __grid_constant__ TensorMap dv,
                       const AttentionBwdParams p) {
  extern __shared__ char smem[];
  const Shared s(smem);
  const u32 warp = uniform(threadIdx.x / 32);
  if (threadIdx.x == 0) {
    barrier_init(s.kv_full, 1);
    for (int i = 0; i < kStages; ++i) {
      barrier_init(s.q_full + i, 1), barrier_init(s.q_free + i, 8);
      barrier_init(s.do_full + i, 1), barrier_init(s.do_free + i, 8);
    }
    barrier_init_fence();
  }
  __syncthreads();
  if (warp < 4) {
    give_registers<24>();
    if (threadIdx.x == 0) {
      Producer producer{p, s, &q, &k, &v, &d_o};
      producer.run();
    }
  } else {
    take_registers<240>();
    Consumer consumer{p, s, &dk, &dv, warp / 4 - 1, threadIdx.x % 32, warp % 4};
    consumer.run();
  }
}

// Grid (n_tiles_m, b · hq) of 256 threads: a warp takes 8 rows of the tile, one after the other.
extern "C" __global__ void attention_bwd_before(const AttentionBwdEdgeParams p) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int batch = blockIdx.y / p.n_heads_q, head = blockIdx.y % p.n_heads_q;
  const long long tile = static_cast<long long>(blockIdx.y) * gridDim.x + blockIdx.x;
  float4* zero = reinterpret_cast<float4*>(p.dq_sum + tile * kDqFloats);
  for (int i = threadIdx.x; i < kDqFloats / 4; i += 256) zero[i] = make_float4(0, 0, 0, 0);
  for (int r = warp; r < kTileM; r += 8) {
    const int row = blockIdx.x * kTileM + r;
    float sum = 0, lse2 = -kNegativeInfinity;
    if (row < p.seqlen_q) {
      const long long at = 4 * lane;
      uint2 o{}, g{};
      if (at < kD) {
        o = *reinterpret_cast<const uint2*>(p.o.data + batch * p.o.batch + row * p.o.row +
                                            head * p.o.head + at);
        g = *reinterpret_cast<const uint2*>(p.d_o.data + batch * p.d_o.batch + row * p.d_o.row +
                                            head * p.d_o.head + at);
      }
      sum = dot_bf16(o.x, g.x) + dot_bf16(o.y, g.y);
      const float lse = p.lse[static_cast<long long>(blockIdx.y) * p.seqlen_q + row];
      if (lse != kNegativeInfinity) lse2 = lse * kLog2e;
    }
    for (int m = 16; m > 0; m /= 2) sum += __shfl_xor_sync(0xffffffff, sum, m);
    if (lane == 0) p.delta[tile * kTileM + r] = sum, p.lse2[tile * kTileM + r] = lse2;
  }
}

// Grid (n_tiles_m, b · hq) of 256 threads, 128 for each 64 columns: dQ out of the order of the
// fragments, by way of shared memory so that whole lines are written.
extern "C" __global__ void attention_bwd_after(const AttentionBwdEdgeParams p) {
  constexpr int kPitch = kD + 8;  // 16-bit elements; rows start four banks apart
  __shared__ __align__(16) u16 tile[kTileM * kPitch];
  const int box = threadIdx.x / 128, thread = threadIdx.x % 128;
  const int batch = blockIdx.y / p.n_heads_q, head = blockIdx.y % p.n_heads_q;
  const long long index = static_cast<long long>(blockIdx.y) * gridDim.x + blockIdx.x;
  if (box < kBoxes) {
    const float4* from =
        reinterpret_cast<const float4*>(p.dq_sum + index * kDqFloats + box * kTileM * 64) + thread;
    u16* place = tile + (thread / 32 * 16 + thread % 32 / 4) * kPitch + box * 64 + 2 * (thread % 4);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float4 x = from[j * 128];
      *reinterpret_cast<u32*>(place + 8 * j) = pack_bf16(x.x * p.scale, x.y * p.scale);
      *reinterpret_cast<u32*>(place + 8 * kPitch + 8 * j) = pack_bf16(x.z * p.scale, x.w * p.scale);
    }
  }
  __syncthreads();
  constexpr int kChunks = kD / 8;  // of 16 bytes
  for (int i = threadIdx.x; i < kTileM * kChunks; i += 256) {
    const int r = i / kChunks, chunk = i % kChunks, row = blockIdx.x * kTileM + r;
    if (row < p.seqlen_q)
      *reinterpret_cast<uint4*>(p.dq.data + batch * p.dq.batch + row * p.dq.row + head * p.dq.head +
                                8 * chunk) =
          *reinterpret_cast<const uint4*>(tile + r * kPitch + 8 * chunk);
  }
}
