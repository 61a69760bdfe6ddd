// O = softmax(scale · Q Kᵀ + mask) V for bf16 on Hopper: the top rung of the attention ladder.
// docs/kernels/attention_sm90.md says what bounds it and what each part gave.
//
//   q [b, sq, hq, d], k and v [b, sk, hk, d], o like q: bf16, any strides the copy engine takes
//   lse [b, hq, sq]: f32, ln Σ exp(scale · q k); -inf for a row without keys, whose O is 0
//
// Query i sees key j if j <= i + sk - sq (causal), or every key. f32 scores and sums; weights
// rounded to bf16 before their product with V. The same bits in every run: nothing is added
// atomically, and a row meets its keys from first to last in tiles of kTileN.
//
// A block has one warpgroup that only asks the copy engine for tiles, and kConsumers warpgroups
// that own 64 query rows each and keep their scores, weights and output in registers. Blocks stay
// for the whole launch and draw tiles of work, longest first, from one counter.
//
// Sources: FlashAttention-3 (Shah et al. 2024), §3.1 and §3.2; rescaling only when it matters:
// FlashAttention-4 (2025).
//
// Variant, by -D:
//   TEGULA_HEAD_DIM 64 | 128
//   TEGULA_CAUSAL 0 | 1
//   TEGULA_TILE_N            keys per tile, a multiple of 16
//   TEGULA_CONSUMERS 2 | 3
//   TEGULA_STAGES            K tiles, and V tiles, in shared memory
//   TEGULA_PING_PONG 0 | 1   consumers take turns at the tensor cores
//   TEGULA_Q_REGISTERS 0 | 1 Q as the A operand from registers, not from shared memory
//   TEGULA_LAZY_LOG2         how far (in powers of 2) a row's maximum may grow before O is rescaled
#include "tegula/kernels/cuda/attention_params.h"
#include "tegula/kernels/cuda/ptx/mbarrier.cuh"
#include "tegula/kernels/cuda/ptx/sync.cuh"
#include "tegula/kernels/cuda/ptx/tma.cuh"
#include "tegula/kernels/cuda/ptx/wgmma.cuh"

namespace tegula::cuda {

constexpr int kD = TEGULA_HEAD_DIM;
constexpr bool kIsCausal = TEGULA_CAUSAL;
constexpr int kTileN = TEGULA_TILE_N;
constexpr int kConsumers = TEGULA_CONSUMERS;
constexpr int kStages = TEGULA_STAGES;
constexpr bool kPingPong = TEGULA_PING_PONG;
constexpr bool kQInRegisters = TEGULA_Q_REGISTERS;
constexpr float kLazyLog2 = TEGULA_LAZY_LOG2;

constexpr int kRows = 64;                   // query rows of a warpgroup
constexpr int kTileM = kRows * kConsumers;  // query rows of a block
constexpr int kBoxes = kD / kBoxColumns;
constexpr int kThreads = 128 * (1 + kConsumers);
constexpr int kProducerRegisters = kConsumers == 2 ? 40 : 32;
constexpr int kConsumerRegisters = kConsumers == 2 ? 232 : 160;
constexpr int kQBytes = kTileM * kD * 2;
constexpr int kKvBytes = kTileN * kD * 2;
constexpr int kSmemLimit = 227 * 1024 - 1024;  // less what aligning to 1024 may take
constexpr int kBarrierBytes = 512;
// O leaves through a place of its own if there is room, else through Q's.
constexpr bool kOwnO = 2 * kQBytes + 2 * kStages * kKvBytes + kBarrierBytes <= kSmemLimit;
static_assert(kQBytes + 2 * kStages * kKvBytes + kBarrierBytes <= kSmemLimit);
static_assert(kTileN % 16 == 0 && kStages >= 2);

struct Shared {
  char* q;  // [kBoxes][kTileM][64]
  char* k;  // [kStages][kBoxes][kTileN][64]
  char* v;  // [kStages][kBoxes][kTileN][64]
  char* o;  // [kBoxes][kTileM][64]
  Barrier *q_full, *q_free;
  Barrier *k_full, *k_free;        // [kStages]
  Barrier *v_full, *v_free;        // [kStages]
  Barrier *next_full, *next_free;  // [2]
  u32* next;                       // [2] tile numbers

  __device__ explicit Shared(char* base) {
    const u32 skip = (1024 - (smem_address(base) & 1023)) & 1023;
    char* p = base + skip;
    q = p, p += kQBytes;
    k = p, p += kStages * kKvBytes;
    v = p, p += kStages * kKvBytes;
    o = kOwnO ? p : q;
    if (kOwnO) p += kQBytes;
    q_full = reinterpret_cast<Barrier*>(p), q_free = q_full + 1;
    k_full = q_free + 1, k_free = k_full + kStages;
    v_full = k_free + kStages, v_free = v_full + kStages;
    next_full = v_free + kStages, next_free = next_full + 2;
    next = reinterpret_cast<u32*>(next_free + 2);
  }
};

// A tile of work: rows [row, row + kTileM) of one head.
struct Tile {
  int row, head, batch;
  int n_blocks;  // K tiles that some row sees

  __device__ Tile(const AttentionParams& p, int index) {
    const int section_tiles = p.heads_per_section * p.n_tiles_m;
    const int section = index / section_tiles;
    const int within = index - section * section_tiles;
    const int first_head = section * p.heads_per_section;
    const int heads = min(p.heads_per_section, p.n_heads_total - first_head);
    const int m = within / heads;
    const int head_of_all = first_head + within - m * heads;
    batch = head_of_all / p.n_heads_q;
    head = head_of_all - batch * p.n_heads_q;
    row = (p.n_tiles_m - 1 - m) * kTileM;
    int keys = p.seqlen_k;
    if (kIsCausal) keys = min(keys, min(row + kTileM, p.seqlen_q) + p.seqlen_k - p.seqlen_q);
    n_blocks = max(0, (keys + kTileN - 1) / kTileN);
  }
};

// ---- Producer ----------------------------------------------------------------------------------

struct Producer {
  const AttentionParams& p;
  const Shared& s;
  const TensorMap *q_map, *k_map, *v_map;
  Ring<1> q_ring;
  Ring<kStages> k_ring, v_ring;
  Ring<2> next_ring;

  // K or V tile `block` into the next slot of its ring, once that is free.
  __device__ void load_kv(Barrier* full, Barrier* free, Ring<kStages>& ring, char* slots,
                          const TensorMap* map, int block, int head, int batch) {
    const u32 slot = ring.slot;
    barrier_wait(free + slot, ring.parity ^ 1);
    barrier_arrive_expect(full + slot, kKvBytes);
#pragma unroll
    for (int box = 0; box < kBoxes; ++box)
      tma_load(slots + slot * kKvBytes + box * (kTileN * kRowBytes), map, full + slot, kEvictLast,
               box * kBoxColumns, block * kTileN, head, batch);
    ring.advance();
  }

  __device__ void load_q(const Tile& t) {
    barrier_wait(s.q_free, q_ring.parity ^ 1);
    barrier_arrive_expect(s.q_full, kQBytes);
#pragma unroll
    for (int box = 0; box < kBoxes; ++box)
      tma_load(s.q + box * (kTileM * kRowBytes), q_map, s.q_full, kEvictFirst, box * kBoxColumns,
               t.row, t.head, t.batch);
    q_ring.advance();
  }

  // Draws the next tile and tells the consumers.
  __device__ int draw_next() {
    const u32 drawn = gridDim.x + atomicAdd(p.counter, 1);
    if (drawn == u32(p.n_tiles) + gridDim.x - 1) *p.counter = 0;  // the last draw of all
    barrier_wait(s.next_free + next_ring.slot, next_ring.parity ^ 1);
    s.next[next_ring.slot] = drawn;
    barrier_arrive(s.next_full + next_ring.slot);
    next_ring.advance();
    return int(drawn);
  }

  __device__ void run() {
    for (int index = blockIdx.x; index < p.n_tiles;) {
      const int next = draw_next();
      const Tile t(p, index);
      const int kv_head = t.head / p.group;
      load_q(t);
      // K runs one tile ahead of V, as the consumers do.
      for (int i = 0; i <= t.n_blocks; ++i) {
        if (i < t.n_blocks) load_kv(s.k_full, s.k_free, k_ring, s.k, k_map, i, kv_head, t.batch);
        if (i > 0) load_kv(s.v_full, s.v_free, v_ring, s.v, v_map, i - 1, kv_head, t.batch);
      }
      index = next;
    }
  }
};

// ---- Consumer ----------------------------------------------------------------------------------

struct Consumer {
  static constexpr int kScores = kTileN / 2;  // scores of a thread: 2 rows × kTileN / 4
  static constexpr int kOut = kD / 2;

  const AttentionParams& p;
  const Shared& s;
  const TensorMap* o_map;
  u32 wg;    // 0..kConsumers-1
  u32 lane;  // 0..31
  u32 warp;  // 0..3
  Ring<1> q_ring;
  Ring<kStages> k_ring, v_ring;
  Ring<2> next_ring;

  u32 q[kQInRegisters ? kD / 4 : 1];  // bf16 [64][kD]
  float o[kOut];                      // [64 rows][kD]
  u32 weights[kScores / 2];           // bf16 [64 rows][kTileN], the A operand of the product with V
  float top[2], sum[2];  // of this thread's two rows: reference maximum (unscaled), Σ of weights
  float grow[2];         // what O is to be multiplied with
  bool rescale;

  // This warp no longer reads what the barrier guards.
  __device__ void release(Barrier* b) {
    __syncwarp();
    if (lane == 0) barrier_arrive(b);
  }

  __device__ void take_turn() {
    if constexpr (kPingPong) named_sync(1 + wg, 256);
  }
  __device__ void pass_turn() {
    if constexpr (kPingPong) named_arrive(1 + (wg + 1) % kConsumers, 256);
  }

  // scores[64][kTileN] = Q[64][kD] · K[kTileN][kD]ᵀ
  __device__ void issue_scores(float (&scores)[kScores]) {
    const SmemOperand b(smem_address(s.k) + k_ring.slot * kKvBytes, 16, 8 * kRowBytes);
    fence_registers(scores);
    wgmma_fence();
    const SmemOperand a(smem_address(s.q) + wg * (kRows * kRowBytes), 16, 8 * kRowBytes);
#pragma unroll
    for (int i = 0; i < kD / 16; ++i) {
      const u32 box = i / 4, within = (i % 4) * 32;
      const u64 keys = b.at(box * (kTileN * kRowBytes) + within);
      if constexpr (kQInRegisters)
        Wgmma<kTileN>::template rs<false>(scores, q + 4 * i, keys, i > 0);
      else
        Wgmma<kTileN>::ss(scores, a.at(box * (kTileM * kRowBytes) + within), keys, i > 0);
    }
    wgmma_commit();
  }

  // o[64][kD] += weights[64][kTileN] · V[kTileN][kD]
  __device__ void issue_output() {
    const SmemOperand b(smem_address(s.v) + v_ring.slot * kKvBytes, kTileN * kRowBytes,
                        8 * kRowBytes);
    fence_registers(o);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kTileN / 16; ++i)
      Wgmma<kD>::template rs<true>(o, weights + 4 * i, b.at(i * 16 * kRowBytes), true);
    wgmma_commit();
  }

  __device__ void mask(float (&scores)[kScores], int row, int block) const {
    const int column = block * kTileN + 2 * int(lane % 4);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      int end = p.seqlen_k;
      if (kIsCausal) end = min(end, row + 8 * r + 1 + p.seqlen_k - p.seqlen_q);
      end -= column;
#pragma unroll
      for (int i = 0; i < kTileN / 8; ++i)
#pragma unroll
        for (int c = 0; c < 2; ++c)
          if (8 * i + c >= end) scores[4 * i + 2 * r + c] = kNegativeInfinity;
    }
  }

  // Scores become weights relative to `top`, which moves only when some row of the warp grew by
  // more than 2^kLazyLog2: until then weights above 1 are as exact as those below, and O need not
  // be touched.
  __device__ void softmax(float (&scores)[kScores]) {
    float block_top[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float m = fmaxf(scores[2 * r], scores[2 * r + 1]);
#pragma unroll
      for (int i = 1; i < kTileN / 8; ++i)
        m = fmaxf(m, fmaxf(scores[4 * i + 2 * r], scores[4 * i + 2 * r + 1]));
      m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, 1));
      block_top[r] = fmaxf(m, __shfl_xor_sync(0xffffffff, m, 2));
    }
    const float slack = kLazyLog2 / p.scale_log2;
    rescale =
        __any_sync(0xffffffff, block_top[0] > top[0] + slack || block_top[1] > top[1] + slack);
    if (rescale) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float next = fmaxf(top[r], block_top[r]);
        grow[r] = next == kNegativeInfinity ? 1.f : exp2_approx((top[r] - next) * p.scale_log2);
        top[r] = next;
        sum[r] *= grow[r];
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float shift = top[r] == kNegativeInfinity ? 0.f : -top[r] * p.scale_log2;
#pragma unroll
      for (int i = 0; i < kTileN / 8; ++i)
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float& x = scores[4 * i + 2 * r + c];
          x = exp2_approx(__fmaf_rn(x, p.scale_log2, shift));
        }
      float add[2] = {scores[2 * r], scores[2 * r + 1]};
#pragma unroll
      for (int i = 1; i < kTileN / 8; ++i)
#pragma unroll
        for (int c = 0; c < 2; ++c) add[c] += scores[4 * i + 2 * r + c];
      sum[r] += add[0] + add[1];
    }
  }

  __device__ void pack(const float (&scores)[kScores]) {
#pragma unroll
    for (int i = 0; i < kScores / 2; ++i) weights[i] = pack_bf16(scores[2 * i], scores[2 * i + 1]);
  }

  __device__ void rescale_output() {
    if (rescale) {
#pragma unroll
      for (int i = 0; i < kOut; ++i) o[i] *= grow[(i / 2) % 2];
    }
  }

  // K tile `block` while the product with the V of tile block + 1 is outstanding.
  template <bool kMasked>
  __device__ void step(int row, int block) {
    float scores[kScores];  // [64][kTileN]
    barrier_wait(s.k_full + k_ring.slot, k_ring.parity);
    take_turn();
    issue_scores(scores);
    barrier_wait(s.v_full + v_ring.slot, v_ring.parity);
    issue_output();
    pass_turn();
    wgmma_wait<1>();
    fence_registers(scores);
    release(s.k_free + k_ring.slot);
    k_ring.advance();
    if constexpr (kMasked) mask(scores, row, block);
    softmax(scores);
    wgmma_wait<0>();
    fence_registers(o);
    release(s.v_free + v_ring.slot);
    v_ring.advance();
    pack(scores);
    rescale_output();
  }

  __device__ void first_step(int row, int block, bool masked) {
    float scores[kScores];
    barrier_wait(s.k_full + k_ring.slot, k_ring.parity);
    issue_scores(scores);
    wgmma_wait<0>();
    fence_registers(scores);
    release(s.k_free + k_ring.slot);
    k_ring.advance();
    if (masked) mask(scores, row, block);
    softmax(scores);
    pack(scores);
  }

  __device__ void last_step() {
    barrier_wait(s.v_full + v_ring.slot, v_ring.parity);
    issue_output();
    wgmma_wait<0>();
    fence_registers(o);
    release(s.v_free + v_ring.slot);
    v_ring.advance();
  }

  // Byte offset, within this warpgroup's rows of Q or O, of what this lane gives to an ldmatrix or
  // stmatrix of columns [16 i, 16 i + 16).
  __device__ u32 fragment(int i) const {
    const u32 row = 16 * warp + (lane & 15), chunk = 2 * i + (lane >> 4);
    return wg * (kRows * kRowBytes) + (chunk / 8) * (kTileM * kRowBytes) + swizzled(row, chunk % 8);
  }

  __device__ void load_q() {
    if constexpr (kQInRegisters) {
#pragma unroll
      for (int i = 0; i < kD / 16; ++i) ldmatrix(smem_address(s.q) + fragment(i), q + 4 * i);
      if (kOwnO) release(s.q_free);
    }
  }

  __device__ void attend(const Tile& t, int row) {
    // K tiles below this one are seen whole by every row of the warpgroup.
    int whole = p.seqlen_k / kTileN;
    if (kIsCausal) {
      const int first_row = t.row + int(wg) * kRows;
      whole = min(whole, max(0, first_row + 1 + p.seqlen_k - p.seqlen_q) / kTileN);
    }
    first_step(row, 0, whole == 0);
    int block = 1;
    for (; block < whole; ++block) step<false>(row, block);
    for (; block < t.n_blocks; ++block) step<true>(row, block);
    if (kOwnO && !kQInRegisters) release(s.q_free);
    last_step();
  }

  // O / Σ to global memory through shared memory, and the log-sum-exp.
  __device__ void write(const Tile& t, int row) {
    float share[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum[r] += __shfl_xor_sync(0xffffffff, sum[r], 1);
      sum[r] += __shfl_xor_sync(0xffffffff, sum[r], 2);
      share[r] = sum[r] == 0.f ? 0.f : 1.f / sum[r];
      if (lane % 4 == 0 && row + 8 * r < p.seqlen_q) {
        const int head_of_all = t.batch * p.n_heads_q + t.head;
        p.lse[static_cast<long long>(head_of_all) * p.seqlen_q + row + 8 * r] =
            sum[r] == 0.f ? kNegativeInfinity : top[r] * p.scale + __logf(sum[r]);
      }
    }
    const bool leader = warp == 0 && lane == 0;
    const u32 barrier = 1 + kConsumers + wg;
    if (kOwnO && leader) tma_store_wait_read();  // the tile before this one has left
    named_sync(barrier, 128);
#pragma unroll
    for (int i = 0; i < kD / 16; ++i) {
      const u32 at = smem_address(s.o) + fragment(i);
      const float* x = o + 8 * i;
      stmatrix(at, pack_bf16(x[0] * share[0], x[1] * share[0]),
               pack_bf16(x[2] * share[1], x[3] * share[1]),
               pack_bf16(x[4] * share[0], x[5] * share[0]),
               pack_bf16(x[6] * share[1], x[7] * share[1]));
    }
    fence_async_proxy();
    named_sync(barrier, 128);
    if (leader) {
      const int first_row = t.row + int(wg) * kRows;
#pragma unroll
      for (int box = 0; box < kBoxes; ++box)
        tma_store(o_map, s.o + wg * (kRows * kRowBytes) + box * (kTileM * kRowBytes),
                  box * kBoxColumns, first_row, t.head, t.batch);
      tma_store_commit();
      if (!kOwnO) tma_store_wait_read();
    }
    if (!kOwnO) named_sync(barrier, 128), release(s.q_free);
  }

  __device__ void run() {
    if (kPingPong && wg == kConsumers - 1) named_arrive(1, 256);  // the first turn is warpgroup 0's
    for (int index = blockIdx.x; index < p.n_tiles;) {
      const Tile t(p, index);
      const int row = t.row + int(wg) * kRows + int(warp) * 16 + int(lane / 4);
#pragma unroll
      for (int i = 0; i < kOut; ++i) o[i] = 0.f;
      top[0] = top[1] = kNegativeInfinity;
      sum[0] = sum[1] = 0.f;
      barrier_wait(s.q_full, q_ring.parity);
      q_ring.advance();
      load_q();
      if (t.n_blocks > 0)
        attend(t, row);
      else if (kOwnO && !kQInRegisters)
        release(s.q_free);
      write(t, row);
      barrier_wait(s.next_full + next_ring.slot, next_ring.parity);
      index = int(uniform(s.next[next_ring.slot]));
      release(s.next_free + next_ring.slot);
      next_ring.advance();
    }
    if (warp == 0 && lane == 0) tma_store_wait_read();
  }
};

}  // namespace tegula::cuda

using namespace tegula::cuda;

// One block per multiprocessor, of kThreads threads.
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attention_sm90(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                   const __grid_constant__ TensorMap v, const __grid_constant__ TensorMap o,
                   const AttentionParams p) {
  extern __shared__ char smem[];
  const Shared s(smem);
  const u32 warp = uniform(threadIdx.x / 32);
  if (threadIdx.x == 0) {
    prefetch_map(&q), prefetch_map(&k), prefetch_map(&v), prefetch_map(&o);
    constexpr u32 kWarps = 4 * kConsumers;
    barrier_init(s.q_full, 1), barrier_init(s.q_free, kWarps);
    for (int i = 0; i < kStages; ++i) {
      barrier_init(s.k_full + i, 1), barrier_init(s.k_free + i, kWarps);
      barrier_init(s.v_full + i, 1), barrier_init(s.v_free + i, kWarps);
    }
    for (int i = 0; i < 2; ++i)
      barrier_init(s.next_full + i, 1), barrier_init(s.next_free + i, kWarps);
    barrier_init_fence();
  }
  __syncthreads();

  if (warp < 4) {
    give_registers<kProducerRegisters>();
    if (threadIdx.x == 0) {
      Producer producer{p, s, &q, &k, &v};
      producer.run();
    }
  } else {
    take_registers<kConsumerRegisters>();
    Consumer consumer{p, s, &o, warp / 4 - 1, threadIdx.x % 32, warp % 4};
    consumer.run();
  }
}
