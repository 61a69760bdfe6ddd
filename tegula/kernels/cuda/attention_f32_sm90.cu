// O = softmax(score(Q Kᵀ)) V for f32 on Hopper, by bf16 tensor cores.
// docs/kernels/attention_f32_sm90.md says what bounds it and what was measured.
//
//   q [b, sq, hq, d], k and v [b, sk, hk, d], o like q: f32, any strides but 1 over d; d <= 256
//   lse [b, hq, sq]: f32, ln Σ exp(scale · q k); -inf for a row without keys, whose O is 0
//
// attention_score.cuh says which keys a query sees and what a score is. Factors are split in three
// (attention_split.cuh) and a product is six; f32 sums. The tensor cores cut sums off instead of
// rounding them, so each tile's product with V begins at 0 and is added to O by ordinary additions.
// The same bits in every run. Rows with a result that is not finite are made again, in f32 and from
// visible keys only.
//
// A block has a warp that only asks the copy engine for tiles, and kConsumers warpgroups that own
// 64 query rows each: while one makes weights, the others keep the tensor cores busy. K and V take
// turns in one ring of slots. (Of 256 columns there is shared memory for one consumer, and O's
// columns are made 64 at a time.)
//
// Three kernels: attention_split, attention_f32_sm90, attention_f32_repair.
//
// Variant, by -D:
//   TEGULA_HEAD_DIM 64 | 128 | 256; of tensors with fewer columns the rest is 0
//   masks and score functions: attention_score.cuh
//   TEGULA_TILE_N     keys per tile, a multiple of 16
//   TEGULA_CONSUMERS  1 | 2 | 3
//   TEGULA_SLOTS      tiles of K or V in shared memory
//   TEGULA_LAZY_LOG2  as in attention_sm90.cu
#define TEGULA_F32 1
#include "tegula/kernels/cuda/attention_exact.cuh"
#include "tegula/kernels/cuda/attention_rows.cuh"
#include "tegula/kernels/cuda/attention_split.cuh"
#include "tegula/kernels/cuda/ptx/sync.cuh"
#include "tegula/kernels/cuda/ptx/tma.cuh"
#include "tegula/kernels/cuda/ptx/wgmma.cuh"

namespace tegula::cuda {

constexpr int kSlots = TEGULA_SLOTS;
constexpr int kBoxes = kD / kBoxColumns;
constexpr int kChainColumns = kD > 128 ? 128 : kD;  // summed in the tensor cores
constexpr int kPieceColumns = kD > 128 ? 64 : kD;   // of O, made at a time: for its registers
constexpr int kQPartBytes = kBoxes * kTileM * kRowBytes;
constexpr int kKvPartBytes = kBoxes * kTileN * kRowBytes;
constexpr int kQBytes = kParts * kQPartBytes;
constexpr int kKvBytes = kParts * kKvPartBytes;
static_assert(kTileN % 16 == 0 && kSlots >= 2);

struct Shared {
  char* q;   // [kParts][kBoxes][kTileM][64]
  char* kv;  // [kSlots][kParts][kBoxes][kTileN][64]
  Barrier *q_full, *q_free;
  Barrier *full, *free;  // [kSlots]
  TileQueue next;

  __device__ explicit Shared(char* base) {
    char* p = base + ((1024 - (smem_address(base) & 1023)) & 1023);
    q = p, p += kQBytes;
    kv = p, p += kSlots * kKvBytes;
    q_full = reinterpret_cast<Barrier*>(p), q_free = q_full + 1;
    full = q_free + 1, free = full + kSlots;
    next.full = free + kSlots, next.free = next.full + 2;
    next.due = next.free + 2;
    next.tile = reinterpret_cast<Tile*>(next.due + 1);
  }
};

// ---- Producer ----------------------------------------------------------------------------------

struct Producer {
  const AttentionParams& p;
  const Shared& s;
  const TensorMap *q_map, *k_map, *v_map;
  Ring<1> q_ring;
  Ring<kSlots> ring;
  Ring<2> next_ring;

  // Rows [row, row + kTileN) of K or V into the next slot, once that is free.
  __device__ void load_kv(const TensorMap* map, int row, int head) {
    Barrier* full = s.full + ring.slot;
    barrier_wait(s.free + ring.slot, ring.parity ^ 1);
    barrier_arrive_expect(full, kKvBytes);
    char* to = s.kv + ring.slot * kKvBytes;
#pragma unroll
    for (int part = kParts - 1; part >= 0; --part)
#pragma unroll
      for (int box = 0; box < kBoxes; ++box)
        tma_load(to + part * kKvPartBytes + box * (kTileN * kRowBytes), map, full, kEvictLast,
                 box * kBoxColumns, row, head, part);
    ring.advance();
  }

  __device__ void load_q(const Tile& t) {
    barrier_wait(s.q_free, q_ring.parity ^ 1);
    barrier_arrive_expect(s.q_full, kQBytes);
#pragma unroll
    for (int part = 0; part < kParts; ++part)
#pragma unroll
      for (int box = 0; box < kBoxes; ++box)
        tma_load(s.q + part * kQPartBytes + box * (kTileM * kRowBytes), q_map, s.q_full,
                 kEvictFirst, box * kBoxColumns, t.row, t.batch * p.n_heads_q + t.head, part);
    q_ring.advance();
  }

  __device__ void run() {
    const int n_heads_kv = p.n_heads_q / p.group;
    for (Tile t = s.next.take<false>(next_ring, p); !t.is_end();
         t = s.next.take<false>(next_ring, p)) {
      const int kv_head = t.batch * n_heads_kv + t.head / p.group;
      load_q(t);
      if (t.n_blocks == 0) s.next.ask();
      for (int i = 0; i < t.n_blocks; ++i) {
        if (i == t.n_blocks - 1) s.next.ask();
        load_kv(k_map, t.key + i * kTileN, kv_head);
        load_kv(v_map, t.key + i * kTileN, kv_head);
      }
    }
  }
};

// ---- Consumer ----------------------------------------------------------------------------------

struct Consumer : RowsOfWarpgroup {
  static constexpr int kOut = kD / 2, kPieceOut = kPieceColumns / 2;

  const Shared& s;
  Ring<1> q_ring;
  Ring<kSlots> ring;
  Ring<2> next_ring;

  float o[kOut];                     // [64 rows][kD]
  u32 weights[kParts][kScores / 2];  // parts of [64 rows][kTileN], operands of the product with V

  // scores[64][kTileN] = Q[64][columns of the chain] · K[kTileN][the same]ᵀ
  __device__ void issue_scores(float (&scores)[kScores], int chain) {
    const SmemOperand a(smem_address(s.q) + wg * (kRows * kRowBytes), 16, 8 * kRowBytes);
    const SmemOperand b(smem_address(s.kv) + ring.slot * kKvBytes, 16, 8 * kRowBytes);
    fence_registers(scores);
    wgmma_fence();
#pragma unroll
    for (int n = 0; n < kProducts; ++n)
#pragma unroll
      for (int i = 0; i < kChainColumns / 16; ++i) {
        const u32 box = chain * (kChainColumns / kBoxColumns) + i / 4, within = (i % 4) * 32;
        Wgmma<kTileN>::ss(
            scores, a.at(part_of_a(n) * kQPartBytes + box * (kTileM * kRowBytes) + within),
            b.at(part_of_b(n) * kKvPartBytes + box * (kTileN * kRowBytes) + within), n + i > 0);
      }
    wgmma_commit();
  }

  // out[64][kPieceColumns] = weights[64][kTileN] · V[kTileN][columns of the piece]
  __device__ void issue_output(float (&out)[kPieceOut], int piece) {
    const u32 box = piece * (kPieceColumns / kBoxColumns);
    const SmemOperand b(smem_address(s.kv) + ring.slot * kKvBytes + box * (kTileN * kRowBytes),
                        kTileN * kRowBytes, 8 * kRowBytes);
    fence_registers(out);
    wgmma_fence();
#pragma unroll
    for (int n = 0; n < kProducts; ++n)
#pragma unroll
      for (int i = 0; i < kTileN / 16; ++i)
        Wgmma<kPieceColumns>::template rs<true>(
            out, weights[part_of_a(n)] + 4 * i,
            b.at(part_of_b(n) * kKvPartBytes + i * 16 * kRowBytes), n + i > 0);
    wgmma_commit();
  }

  __device__ void free_slot() {
    release(s.free + ring.slot);
    ring.advance();
  }

  __device__ void split(float (&scores)[kScores], const Tile& t, int row, int block) {
    if constexpr (kHasDropout) drop(t, row, block, [&](int e) { scores[e] = 0.f; });
#pragma unroll
    for (int i = 0; i < kScores / 2; ++i) {
      float low = scores[2 * i], high = scores[2 * i + 1];
#pragma unroll
      for (int part = 0; part < kParts; ++part) weights[part][i] = take_part(low, high);
    }
  }

  // With edges at both ends a step asks whether it has one: three copies took twice as long to
  // compile.
  static constexpr bool kOneStep = kHasStart && !kAlwaysMasks;

  // K tile `block`, which some row of this warpgroup sees.
  template <bool kMasked>
  __device__ void step(const Tile& t, int row, int block) {
    {
      float scores[kScores];  // [64][kTileN]
      barrier_wait(s.full + ring.slot, ring.parity);
      issue_scores(scores, 0);
      if constexpr (kD > kChainColumns) {
        float more[kScores];
        issue_scores(more, 1);
        wgmma_wait<0>();
        fence_registers(scores), fence_registers(more);
#pragma unroll
        for (int i = 0; i < kScores; ++i) scores[i] += more[i];
      }
      wgmma_wait<0>();
      fence_registers(scores);
      free_slot();
      if (block + 1 == to) release(s.q_free);  // the next Q comes during what is left to do
      if (kMasked && (!kOneStep || block < begin || block >= whole)) score(scores, t, row, block);
      count(t, row, block);
      softmax(scores, t);
      split(scores, t, row, block);
    }
    barrier_wait(s.full + ring.slot, ring.parity);
#pragma unroll
    for (int piece = 0; piece < kD / kPieceColumns; ++piece) {
      float out[kPieceOut];
      issue_output(out, piece);
      if (piece == 0 && rescale) {
#pragma unroll
        for (int i = 0; i < kOut; ++i) o[i] *= grow[(i / 2) % 2];
      }
      wgmma_wait<0>();
      fence_registers(out);
      if (piece == kD / kPieceColumns - 1) free_slot();
#pragma unroll
      for (int i = 0; i < kPieceOut; ++i) o[piece * kPieceOut + i] += out[i];
    }
  }

  // O / Σ and the log-sum-exp: whole sectors, two columns a thread.
  __device__ void write(const Tile& t, int row) {
    finish_sums(t, row);
    bool is_finite = true;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (row + 8 * r >= t.s.q_end) continue;
      float* to = row_of(p.o, t.batch, row + 8 * r, t.head);
#pragma unroll
      for (int i = 0; i < kD / 8; ++i)
        is_finite &= put_two(to, 8 * i + 2 * int(lane % 4), p.head_dim, o[4 * i + 2 * r] * sum[r],
                             o[4 * i + 2 * r + 1] * sum[r]);
    }
    if (!is_finite) *p.leaked = 1;
  }

  __device__ void attend(const Tile& t) {
    const int row = row_of_tile(t);
#pragma unroll
    for (int i = 0; i < kOut; ++i) o[i] = 0.f;
    top[0] = top[1] = kNegativeInfinity;
    sum[0] = sum[1] = 0.f;
    find_edges(t, row);
    barrier_wait(s.q_full, q_ring.parity);
    q_ring.advance();
    if (from == to) release(s.q_free);
    int block = 0;
    const auto skip = [&](int end) {  // others' tiles of K and V
      for (; block < end; ++block)
        for (int i = 0; i < 2; ++i) barrier_wait(s.full + ring.slot, ring.parity), free_slot();
    };
    skip(from);
    if constexpr (!kAlwaysMasks && !kOneStep)
      for (; block < min(whole, to); ++block) step<false>(t, row, block);
    for (; block < to; ++block) step<true>(t, row, block);
    skip(t.n_blocks);
    write(t, row);
  }

  __device__ void run() {
    for (Tile t = s.next.take<true>(next_ring, p); !t.is_end(); t = s.next.take<true>(next_ring, p))
      attend(t);
  }
};

// ---- Rows that came out not finite --------------------------------------------------------------

// ln Σ exp(score) of query i, key by key.
__device__ inline float exact_lse(const AttentionParams& p, const AttentionScore& score, int i) {
  const Element* q = row_of(p.q, score.batch, i, score.head);
  float top = kNegativeInfinity, sum = 0.f;
  if constexpr (kHasSinks) top = p.f.sinks[score.head], sum = 1.f;
  const Range seen = score.s.q_end > score.s.q_begin ? score.keys(i) : Range{0, 0};
#pragma unroll 1
  for (int j = seen.lo; j < seen.hi; ++j) {
    if (!score.user_sees(i, j)) continue;
    const Element* k = row_of(p.k, score.batch, j, score.head / p.group);
    float raw = 0.f;
    for (int e = int(threadIdx.x % 32); e < p.head_dim; e += 32) raw = __fmaf_rn(q[e], k[e], raw);
    const float x = score(warp_sum(raw), i, j) * AttentionScore::factor(p.scale);
    if (x == kNegativeInfinity) continue;
    if (x > top) sum *= expf(top - x), top = x;
    sum += x == -kNegativeInfinity ? 0.f : expf(x - top);  // of infinity the logarithm is itself
  }
  return top + (top == -kNegativeInfinity ? 0.f : logf(sum));
}

// Row n of all (batch entry, head, query), if it is not finite.
__device__ inline void repair_row(const AttentionParams& p, long long n) {
  const int i = int(n % p.seqlen_q), head_of_all = int(n / p.seqlen_q);
  const int batch = head_of_all / p.n_heads_q, head = head_of_all % p.n_heads_q;
  float* to = row_of(p.o, batch, i, head);
  bool bad = false;
  for (int c = int(threadIdx.x % 32); c < p.head_dim; c += 32)
    bad |= !(fabsf(to[c]) < -kNegativeInfinity);
  if (!__any_sync(0xffffffff, bad)) return;
  const Sequence s = sequence_of_row(p.f, true, i, p.seqlen_q, p.seqlen_k);
  const AttentionScore score(p.f, s, batch, head, p.n_heads_q, p.seqlen_q, p.seqlen_k, p.scale);
  const float lse = exact_lse(p, score, i);
  if (threadIdx.x % 32 == 0) p.lse[n] = lse;
  attend_exactly<kD>(p, score, i, lse, [&](int column, float x) {
    if (column < p.head_dim) to[column] = x;
  });
}

}  // namespace tegula::cuda

using namespace tegula::cuda;

// One block per multiprocessor, of kThreads threads. The maps are of the parts: (column, row, head
// of all batch entries, part).
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attention_f32_sm90(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                       const __grid_constant__ TensorMap v, const AttentionParams p) {
  extern __shared__ char smem[];
  const Shared s(smem);
  const u32 warp = uniform(threadIdx.x / 32);
  if (threadIdx.x == 0) {
    prefetch_map(&q), prefetch_map(&k), prefetch_map(&v);
    constexpr u32 kWarps = 4 * kConsumers;
    barrier_init(s.q_full, 1), barrier_init(s.q_free, kWarps);
    for (int i = 0; i < kSlots; ++i) barrier_init(s.full + i, 1), barrier_init(s.free + i, kWarps);
    s.next.init(kWarps + 1);
    barrier_init_fence();
  }
  __syncthreads();
  if (warp < 4) {
    if constexpr (kConsumers > 1) give_registers<kConsumers == 3 ? 32 : 40>();
    if (warp == 0) {
      Producer producer{p, s, &q, &k, &v};
      if (elect_one()) producer.run();
    } else if (threadIdx.x == 32) {
      s.next.deal(p);
    }
  } else {
    if constexpr (kConsumers > 1) take_registers<kConsumers == 3 ? 160 : 232>();
    Consumer consumer{{p, warp / 4 - 1, threadIdx.x % 32, warp % 4}, s};
    consumer.run();
  }
}

// Any grid of 256 threads; a warp takes a row.
extern "C" __global__ void attention_f32_repair(const AttentionParams p) {
  if (*p.leaked == 0) return;
  const long long n_rows = (long long)(p.n_heads_total) * p.seqlen_q;
  for (long long n = blockIdx.x * 8 + threadIdx.x / 32; n < n_rows; n += gridDim.x * 8)
    repair_row(p, n);
}
