// Gradients of f32 attention on Hopper, by recomputation of the weights and by bf16 tensor cores.
//
//   P = exp(scale · Q Kᵀ - lse),  dV = Pᵀ dO,  dS = P ∘ (dO Vᵀ - delta),  delta = Σ_d O ∘ dO
//   dK = scale · dSᵀ Q,  dQ = scale · dS K
// Shapes as in attention_f32_sm90.cu; grouped query heads are summed into their KV head inside a
// block. Factors are split in three (attention_split.cuh), P and dS in registers; a product is six,
// begins at 0, and is added to its f32 sum by ordinary additions. dK and dV have the same bits in
// every run; dQ is summed over key tiles by f32 additions in L2, whose order is not fixed.
//
// A block owns 128 keys of one KV head (64 if rows are wider than 64), whose parts stay in shared
// memory while tiles of 64 queries pass by. Scores are computed transposed, so that Pᵀ and dSᵀ are
// register operands of the products that sum dV and dK. Of 128 keys each warpgroup has 64, and adds
// its own dQ of them to global memory: six products take so long that twice the additions do not
// matter, and neither waits for the other. Of 64 keys both make all scores, and each sums half of
// the columns: with sums of whole rows there would be no registers for the parts.
//
// In order (kOrdered): dQ is summed over keys in their order (attention_bwd_order.cuh), for the
// same bits in every run; each warp asks for the turn of its own part of a tile and passes it on.
//
// Kernels: attention_split, attention_bwd_before (delta, padded lse, zeroes for dQ),
// attention_f32_bwd_sm90, attention_f32_bwd_after (dQ to its place), attention_bwd_repair.
//
// Variant, by -D: TEGULA_HEAD_DIM 64 | 128; attention_score.cuh.
#define TEGULA_F32 1
#include "tegula/kernels/cuda/attention_bwd_order.cuh"
#include "tegula/kernels/cuda/attention_split.cuh"

namespace tegula::cuda {

static_assert(kD == 64 || kD == 128);
constexpr bool kSplitsColumns = kD == 128;  // between the warpgroups; else keys
constexpr int kKeys = kSplitsColumns ? 64 : 128;
using Unit = KeyUnit<kKeys>;
constexpr int kColumns = 64;  // of a warpgroup's sums
constexpr int kSums = kColumns / 2;
constexpr int kSlots = kSplitsColumns ? 2 : 3;  // tiles of Q or dO, which take turns
constexpr int kKvBox = kKeys * kRowBytes, kKvPartBytes = kBoxes * kKvBox;
constexpr int kKvBytes = kParts * kKvPartBytes;
constexpr int kSlotBytes = kParts * kTileBytes;
constexpr int kDsPartBytes = kTile * kRowBytes, kDsBytes = kParts * kDsPartBytes;
constexpr int kDsTiles = kSplitsColumns ? 1 : 2;
constexpr int kDqFloats = kTile * kD;
// The factor of dS then is no weight, as the gradient of the bias needs it.
static_assert(kBias == 0 || !kHasSlope);

// In order: a block's unit, its tiles as they pass by, and the unit that adds to a tile before this
// one does, but for tiles [lo, hi). In shared memory, since registers are scarce.
struct TurnsOfUnit {
  Unit unit;
  DqPass tiles;
  int before, lo, hi;
};

struct Shared {
  char *k, *v;     // [kParts][kBoxes][kKeys][64]
  char* slots;     // [kSlots][kParts][kBoxes][64][64]
  char* ds;        // [kDsTiles][kParts][64 keys][64 queries]: dSᵀ
  float* numbers;  // [kSlots][64]: lse of a tile of Q, delta of one of dO
  Barrier* kv_full;
  Barrier *full, *free;  // [kSlots]
  int* ticket;
  TurnsOfUnit* turns;

  __device__ explicit Shared(char* base) {
    char* p = base + ((1024 - (smem_address(base) & 1023)) & 1023);
    k = p, p += kKvBytes;
    v = p, p += kKvBytes;
    slots = p, p += kSlots * kSlotBytes;
    ds = p, p += kDsTiles * kDsBytes;
    numbers = reinterpret_cast<float*>(p), p += kSlots * kTile * 4;
    kv_full = reinterpret_cast<Barrier*>(p);
    full = kv_full + 1, free = full + kSlots;
    ticket = reinterpret_cast<int*>(free + kSlots);
    turns = reinterpret_cast<TurnsOfUnit*>(ticket + 1);
  }
};

// ---- Producer ----------------------------------------------------------------------------------

struct Producer {
  const AttentionBwdParams& p;
  const Shared& s;
  const TensorMap *q_map, *k_map, *v_map, *do_map;

  __device__ void load_kv(const Unit& t, const DqPass& tiles) {
    if constexpr (kOrdered) {
      const DqNeighbours near(p, t, tiles.next > 0);
      const int first = tiles.first, past = first + near.n_begun * tiles.next;
      *s.turns = {t, tiles, near.before, tiles.next > 0 ? first : past + 1,
                  tiles.next > 0 ? past : first + 1};
    }
    barrier_arrive_expect(s.kv_full, 2 * kKvBytes);
    const int head_of_all = t.batch * p.n_heads_kv + t.head;
#pragma unroll 1
    for (int part = 0; part < kParts; ++part)
      for (int box = 0; box < kBoxes; ++box) {
        const int at = part * kKvPartBytes + box * kKvBox, column = box * kBoxColumns;
        tma_load(s.k + at, k_map, s.kv_full, kEvictFirst, column, t.key, head_of_all, part);
        tma_load(s.v + at, v_map, s.kv_full, kEvictFirst, column, t.key, head_of_all, part);
      }
  }

  // A tile of Q and its lse, or of dO and its delta, as the n-th tile of the slots.
  __device__ void load_rows(int n, const TensorMap* map, const float* from, const Unit& t, int head,
                            int m) {
    const int slot = n % kSlots, parity = n / kSlots % 2;
    const int head_of_all = t.batch * p.n_heads_q + head;
    barrier_wait(s.free + slot, parity ^ 1);
    barrier_arrive_expect(s.full + slot, kSlotBytes + kTile * 4);
#pragma unroll 1
    for (int part = 0; part < kParts; ++part)
      for (int box = 0; box < kBoxes; ++box)
        tma_load(s.slots + slot * kSlotBytes + part * kTileBytes + box * kBoxBytes, map,
                 s.full + slot, kEvictLast, box * kBoxColumns, t.s.q_begin + m * kTile, head_of_all,
                 part);
    bulk_load(s.numbers + slot * kTile,
              from + (static_cast<long long>(head_of_all) * p.n_tiles_m + t.slot + m) * kTile,
              kTile * 4, s.full + slot);
  }

  __device__ void run(const Unit& t, const DqPass& tiles) {
    load_kv(t, tiles);
    int i = 0;
    for (int head = t.head * p.group; head < (t.head + 1) * p.group; ++head)
      for (int m = tiles.first; m != tiles.past; m += tiles.next, ++i) {
        // With two slots that of dO is free first.
        const bool swaps = kSlots == 2 && i > 0;
        if (swaps) load_rows(2 * i + 1, do_map, p.delta, t, head, m);
        load_rows(2 * i, q_map, p.lse2, t, head, m);
        if (!swaps) load_rows(2 * i + 1, do_map, p.delta, t, head, m);
      }
  }
};

// ---- Consumer ----------------------------------------------------------------------------------

struct Consumer {
  const AttentionBwdParams& p;
  const Shared& s;
  u32 wg, lane, warp;

  float dk[kSums], dv[kSums];  // [64 keys][kColumns]
  u32 kept;
  u32* given = nullptr;  // in order: the turn that is to be passed on

  // out[64 keys][64 queries] = rows[64 of the block's keys][kD] · tile[64][kD]ᵀ
  __device__ void issue_transposed(float (&out)[kScores], const char* rows, const char* tile) {
    const SmemOperand a(fresh_address(rows) + (kSplitsColumns ? 0 : wg * kBoxBytes), 16,
                        8 * kRowBytes);
    const SmemOperand b(fresh_address(tile), 16, 8 * kRowBytes);
    fence_registers(out);
    wgmma_fence();
#pragma unroll
    for (int n = 0; n < kProducts; ++n)
#pragma unroll
      for (int i = 0; i < kD / 16; ++i) {
        const u32 box = i / 4, within = (i % 4) * 32;
        Wgmma<64>::ss(out, a.at(part_of_a(n) * kKvPartBytes + box * kKvBox + within),
                      b.at(part_of_b(n) * kTileBytes + box * kBoxBytes + within), n + i > 0);
      }
    wgmma_commit();
  }

  // out[64 keys][kColumns] = weights[64 keys][64 queries] · tile[64 queries][kColumns]
  __device__ void issue_sum(float (&out)[kSums], const u32 (&weights)[kParts][kScores / 2],
                            const char* tile) {
    const SmemOperand b(fresh_address(tile) + (kSplitsColumns ? wg * kBoxBytes : 0), kBoxBytes,
                        8 * kRowBytes);
    fence_registers(out);
    wgmma_fence();
#pragma unroll
    for (int n = 0; n < kProducts; ++n)
#pragma unroll
      for (int i = 0; i < kTile / 16; ++i)
        Wgmma<kColumns>::rs<true>(out, weights[part_of_a(n)] + 4 * i,
                                  b.at(part_of_b(n) * kTileBytes + i * 16 * kRowBytes), n + i > 0);
    wgmma_commit();
  }

  // dq[64 queries][kColumns] = dS[64 queries][64 keys] · K[64 keys][kColumns]
  __device__ void issue_dq(float (&dq)[kSums], const char* ds) {
    const SmemOperand a(fresh_address(ds), 16, 8 * kRowBytes);
    const SmemOperand b(fresh_address(s.k) + wg * (kSplitsColumns ? kKvBox : kBoxBytes), kKvBox,
                        8 * kRowBytes);
    fence_registers(dq);
    wgmma_fence();
#pragma unroll
    for (int n = 0; n < kProducts; ++n)
#pragma unroll
      for (int i = 0; i < kTile / 16; ++i)
        Wgmma<kColumns>::ss<true>(dq, a.at(part_of_a(n) * kDsPartBytes + i * 16 * kRowBytes),
                                  b.at(part_of_b(n) * kKvPartBytes + i * 16 * kRowBytes),
                                  n + i > 0);
    wgmma_commit();
  }

  // All threads that write or read one tile of dS.
  __device__ void sync_ds() const {
    if constexpr (kSplitsColumns)
      named_sync(1, 256);
    else
      named_sync(1 + wg, 128);
  }

  // The parts of dSᵀ to shared memory, for dQ: both warpgroups have all of it, or each its own.
  __device__ void store_ds(const u32 (&ds)[kParts][kScores / 2], char* to) const {
    sync_ds();  // dQ of the step before has been made of what lies there
    const u32 row = 16 * warp + (lane & 15);
#pragma unroll
    for (int part = 0; part < kParts; ++part)
#pragma unroll
      for (int j = 0; j < kTile / 16; ++j)
        if (!kSplitsColumns || j / 2 == int(wg))
          stmatrix(smem_address(to) + part * kDsPartBytes + swizzled(row, 2 * j + (lane >> 4)),
                   ds[part][4 * j], ds[part][4 * j + 1], ds[part][4 * j + 2], ds[part][4 * j + 3]);
    fence_async_proxy();
    sync_ds();
  }

  // The gradient of a bias, of elements (key, row) and the like.
  __device__ void add_bias_gradient(const float (&weight)[kScores], const float (&dp)[kScores],
                                    const float* delta, const SeenKeys& seen, const Unit& t,
                                    int head, int row, int key) const {
    if (p.d_bias == nullptr || (kSplitsColumns && wg == 1)) return;
    float* to = p.d_bias + t.batch * p.d_bias_batch + head * p.d_bias_head;
    float sum[2] = {0.f, 0.f};  // of keys that the queries share
#pragma unroll
    for (int e = 0; e < kScores; ++e) {
      const int r = e / 2 % 2, i = row + e / 4 * 8 + e % 2;
      // A weight of 0 counts: what it is multiplied with may be NaN.
      if (i < seen.r[r].lo || i >= seen.r[r].hi) continue;
      if (kHasUserMask && weight[e] == 0.f) continue;
      const float d = d_score(weight[e], dp[e], delta[e / 4 * 8 + e % 2], kept, e, p.f.keep_factor);
      float* at = to + i * p.d_bias_row + key + 8 * r;
      if (shares_bias(p))
        sum[r] += d;
      else if (p.d_bias_sums)
        atomicAdd(at, d);
      else
        *at = d;
    }
    if (!shares_bias(p)) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum[r] += __shfl_xor_sync(0xffffffff, sum[r], 1);
      sum[r] += __shfl_xor_sync(0xffffffff, sum[r], 2);
      if (lane % 4 == 0 && sum[r] != 0.f) atomicAdd(to + key + 8 * r, sum[r]);
    }
  }

  __device__ static void add(float (&sum)[kSums], const float (&x)[kSums]) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) sum[i] += x[i];
  }

  // A tile of queries; `whole`: each sees all keys.
  __device__ void step(const Unit& t, int head, int m, bool whole, Ring<kSlots>& ring) {
    const Ring<kSlots> q_at = ring;
    ring.advance();
    const Ring<kSlots> do_at = ring;
    ring.advance();
    const char *q = s.slots + q_at.slot * kSlotBytes, *d_o = s.slots + do_at.slot * kSlotBytes;
    const float* lse = s.numbers + q_at.slot * kTile + 2 * (lane % 4);
    const float* delta = s.numbers + do_at.slot * kTile + 2 * (lane % 4);
    const int row = t.s.q_begin + m * kTile + 2 * int(lane % 4);
    const int key = t.key + int((kSplitsColumns ? 0 : wg * kTile) + warp * 16 + lane / 4);
    const AttentionScore score = scores_of(p, t.s, t.batch, head);
    const SeenKeys seen(score, key);

    // One product after the other: what each needs is gone before the next, or there would be too
    // few registers. Meanwhile the other warpgroup keeps the tensor cores busy.
    float sc[kScores];  // Sᵀ, Pᵀ, dSᵀ [64 keys][64 queries]
    u32 parts[kParts][kScores / 2];
    barrier_wait(s.full + q_at.slot, q_at.parity);
    issue_transposed(sc, s.k, q);
    pass_turn(t);
    wgmma_wait<0>();
    fence_registers(sc);
    const auto put = [&](int i, float a, float b) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) parts[part][i] = take_part(a, b);
    };
    kept = kept_transposed<kScores, false>(score, row, key);
    if (!kSplitsColumns || wg == 0) count_transposed<kScores, true>(p, score, row, key);
    if (whole)
      weigh_transposed<false>(sc, put, kept, score, seen, EightFrom{lse}, row, key, p.scale_log2);
    else
      weigh_transposed<true>(sc, put, kept, score, seen, EightFrom{lse}, row, key, p.scale_log2);

    float sum[kSums], dp[kScores];
    barrier_wait(s.full + do_at.slot, do_at.parity);
    issue_sum(sum, parts, d_o);
    wgmma_wait<0>();
    fence_registers(sum);
    issue_transposed(dp, s.v, d_o);
    add(dv, sum);
    wgmma_wait<0>();
    fence_registers(dp);
    if constexpr (kBias != 0) add_bias_gradient(sc, dp, delta, seen, t, head, row, key);
#pragma unroll
    for (int i = 0; i < kTile / 8; ++i) {
      const float2 d = *reinterpret_cast<const float2*>(delta + 8 * i);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int e = 4 * i + 2 * r;
        put(e / 2, d_score(sc[e], dp[e], d.x, kept, e, p.f.keep_factor),
            d_score(sc[e + 1], dp[e + 1], d.y, kept, e + 1, p.f.keep_factor));
      }
    }
    release_barrier(s.free + do_at.slot);

    float dq[kSums];
    issue_sum(sum, parts, q);
    char* ds = s.ds + (kSplitsColumns ? 0 : wg * kDsBytes);
    store_ds(parts, ds);
    issue_dq(dq, ds);
    wgmma_wait<1>();
    fence_registers(sum);
    add(dk, sum);
    release_barrier(s.free + q_at.slot);
    wgmma_wait<0>();
    fence_registers(dq);
    await_turn(t, head, m);
    add_dq(dq, t, head, m);
    if constexpr (kOrdered) given = turn_of(t, head, m);
  }

  // A warp's part of a tile of dQ has a counter, to which all come in turn that add there: the
  // units, and of 128 keys their warpgroups.
  static constexpr int kTurns = kSplitsColumns ? 1 : 2;
  __device__ u32* turn_of(const Unit& t, int head, int m) const {
    return p.order + t.dq_tile(p, head, m) * p.orders_of_tile + warp +
           (kSplitsColumns ? 4 * wg : 0);
  }
  __device__ void await_turn(const Unit& t, int head, int m) const {
    if constexpr (!kOrdered) return;
    const bool is_second = !kSplitsColumns && wg == 1;
    const TurnsOfUnit& turns = *s.turns;
    const int last = kTurns * (is_second ? t.unit : turns.before + 1) + (is_second ? 1 : 0);
    if (lane == 0 && (is_second || m < turns.lo || m >= turns.hi))
      while (load_acquire(turn_of(t, head, m)) != u32(last)) {
      }
    __syncwarp();
  }
  // The additions of the step before are done when the next scores are under way.
  __device__ void pass_turn(const Unit& t) const {
    if constexpr (!kOrdered) return;
    __threadfence();
    __syncwarp();
    if (lane == 0 && given != nullptr)
      store_release(given, kTurns * t.unit + 1 + (kSplitsColumns ? 0 : wg));
  }

  // To global memory: 512 bytes in a row from a warp.
  __device__ void add_dq(const float (&dq)[kSums], const Unit& t, int head, int m) const {
    const long long head_of_all = t.batch * p.n_heads_q + head;
    float* to = p.dq_sum + (head_of_all * p.n_tiles_m + t.slot + m) * kDqFloats +
                4 * (warp * 32 + lane) + (kSplitsColumns ? wg * (kDqFloats / 2) : 0);
#pragma unroll
    for (int j = 0; j < kSums / 4; ++j)
      global_add(to + j * 512, dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
  }

  __device__ void write(const Unit& t, const float (&sum)[kSums], float factor,
                        const AttentionTensor& tensor) const {
    const int key = t.key + int((kSplitsColumns ? 0 : wg * kTile) + warp * 16 + lane / 4);
    bool is_finite = true;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (key + 8 * r >= t.s.k_end) continue;
      float* to = row_of(tensor, t.batch, key + 8 * r, t.head);
#pragma unroll
      for (int i = 0; i < kColumns / 8; ++i)
        is_finite &=
            put_two(to, (kSplitsColumns ? int(wg) * kColumns : 0) + 8 * i + 2 * int(lane % 4),
                    p.head_dim, sum[4 * i + 2 * r] * factor, sum[4 * i + 2 * r + 1] * factor);
    }
    if (!is_finite) *p.leaked = 1;
  }

  __device__ void run(const Unit& of_block) {
    const Unit& t = kOrdered ? s.turns->unit : of_block;
    Ring<kSlots> ring;
#pragma unroll
    for (int i = 0; i < kSums; ++i) dk[i] = dv[i] = 0.f;
    barrier_wait(s.kv_full, 0);
    // Query tiles [begin, end) see all keys of the block.
    Range seen = t.seen_by(p, t.key);
    if constexpr (!kSplitsColumns) {
      const Range other = t.seen_by(p, t.key + kTile);
      seen = {max(seen.lo, other.lo), min(seen.hi, other.hi)};
    }
    const int begin = (seen.lo - t.s.q_begin + kTile - 1) / kTile;
    const int end = (seen.hi - t.s.q_begin) / kTile;
    for (int head = t.head * p.group; head < (t.head + 1) * p.group; ++head)
      if constexpr (kOrdered) {
        const DqPass& tiles = s.turns->tiles;
        for (int m = tiles.first; m != tiles.past; m += tiles.next)
          step(t, head, m, m >= begin && m < end, ring);
      } else {
        for (int m = t.first_m; m < t.end_m; ++m) step(t, head, m, m >= begin && m < end, ring);
      }
    pass_turn(t);
    write(t, dv, 1.f, p.dv);
    write(t, dk, p.scale, p.dk);
  }
};

}  // namespace tegula::cuda

using namespace tegula::cuda;

// Grid n_units_k · b · hk of 384 threads. The maps are of the parts: (column, row, head of all
// batch entries, part).
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attention_f32_bwd_sm90(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                           const __grid_constant__ TensorMap v,
                           const __grid_constant__ TensorMap d_o, const AttentionBwdParams p) {
  extern __shared__ char smem[];
  const Shared s(smem);
  const u32 warp = uniform(threadIdx.x / 32);
  if (threadIdx.x == 0) {
    barrier_init(s.kv_full, 1);
    for (int i = 0; i < kSlots; ++i)
      barrier_init(s.full + i, 1), barrier_init(s.free + i, 8 * kArrivals);
    barrier_init_fence();
    if (kOrdered) *s.ticket = int(atomicAdd(p.ticket, 1));
  }
  __syncthreads();
  const UnitPlace at(p, kOrdered ? uniform(*s.ticket) : blockIdx.x);
  const Unit t(p, at);
  const DqPass tiles(t, at.rises);
  if (warp < 4) {
    give_registers<kSplitsColumns ? 40 : 24>();
    if (warp == 0 && elect_one()) {
      Producer producer{p, s, &q, &k, &v, &d_o};
      producer.run(t, tiles);
    }
  } else {
    take_registers<kSplitsColumns ? 232 : 240>();
    Consumer consumer{p, s, warp / 4 - 1, threadIdx.x % 32, warp % 4};
    consumer.run(t);
  }
}

// Grid (n_tiles_m, b · hq) of 256 threads: dQ out of the order of the fragments. Eight columns of a
// tile lie together, as 128 float4; the thread whose they were is the place among them.
extern "C" __global__ void attention_f32_bwd_after(const AttentionBwdParams p) {
  const int thread = threadIdx.x % 128;
  const int batch = blockIdx.y / p.n_heads_q, head = blockIdx.y % p.n_heads_q;
  const long long index = static_cast<long long>(blockIdx.y) * gridDim.x + blockIdx.x;
  const float4* from = reinterpret_cast<const float4*>(p.dq_sum + index * kDqFloats) + thread;
  const Range rows = rows_of_slot(p, blockIdx.x);
  const int row = rows.lo + thread / 32 * 16 + thread % 32 / 4;
  float* to = row_of(p.dq, batch, row, head);
  bool is_finite = true;
#pragma unroll
  for (int chunk = threadIdx.x / 128; chunk < kD / 8; chunk += 2) {
    const float4 x = from[chunk * 128];
    const int column = 8 * chunk + 2 * (thread % 4);
    if (row < rows.hi) is_finite &= put_two(to, column, p.head_dim, x.x * p.scale, x.y * p.scale);
    if (row + 8 < rows.hi)
      is_finite &= put_two(to + 8 * p.dq.row, column, p.head_dim, x.z * p.scale, x.w * p.scale);
  }
  if (!is_finite) *p.leaked = 1;
}
