// The Hopper attention forward's variant, shared memory, and the warp that loads tiles;
// attention_sm90.cu says how it works.
#pragma once

#include "tegula/kernels/cuda/attention_rows.cuh"
#include "tegula/kernels/cuda/ptx/mbarrier.cuh"
#include "tegula/kernels/cuda/ptx/sync.cuh"
#include "tegula/kernels/cuda/ptx/tma.cuh"
#include "tegula/kernels/cuda/ptx/wgmma.cuh"

namespace tegula::cuda {

constexpr int kStages = TEGULA_STAGES;
constexpr bool kPingPong = TEGULA_PING_PONG;
constexpr bool kQInRegisters = TEGULA_Q_REGISTERS;

#ifndef TEGULA_ODD
#define TEGULA_ODD 0
#endif
// The tensors' head_dim is no multiple of 8: the copy engine would write what lies behind a row of
// O, up to the next 16 bytes.
constexpr bool kIsOdd = TEGULA_ODD;

constexpr int kElementsOf4Bytes = kIsF8 ? 4 : 2;
constexpr int kDepth = 8 * kElementsOf4Bytes;       // what an instruction of the tensor cores sums
constexpr int kInColumns = 32 * kElementsOf4Bytes;  // of a box of Q or K, 128 bytes
constexpr int kBoxes = (kD + kInColumns - 1) / kInColumns;
constexpr int kOutBoxes = (kD + kBoxColumns - 1) / kBoxColumns;
// Not for producers that find a tile's keys.
constexpr bool kAllRegisters = (kD == 256 || kIsF8) && !kHasStart && !kIsPacked;
constexpr int kProducerRegisters = kConsumers == 4   ? 24
                                   : kConsumers == 3 ? 32
                                   : kAllRegisters   ? 24
                                                     : 40;
constexpr int kConsumerRegisters = kConsumers == 4   ? 112
                                   : kConsumers == 3 ? 160
                                   : kAllRegisters   ? 240
                                                     : 232;
constexpr int kQBytes = kBoxes * kTileM * kRowBytes;
constexpr int kOBytes = kOutBoxes * kTileM * kRowBytes;
constexpr int kKBytes = kBoxes * kTileN * kRowBytes;
constexpr int kVBytes = kIsF8 ? kD * kRowBytes : kKBytes;  // of e4m3: Vᵀ, 128 keys wide
constexpr int kKvBytes = kKBytes + kVBytes;
constexpr int kSmemLimit = 227 * 1024 - 1024;  // less what aligning to 1024 may take
constexpr int kBarrierBytes = 512;
constexpr int kLeastBytes = kQBytes + kStages * kKvBytes + kBarrierBytes;
static_assert(kLeastBytes <= kSmemLimit);
// O leaves through a place of its own if there is room, else through Q's.
constexpr bool kOwnO = kLeastBytes + kOBytes <= kSmemLimit;
// The next tile's Q, too, has a place if there is room. (In registers it leaves its place early.)
constexpr int kQStages =
    kOwnO && !kQInRegisters && kLeastBytes + kOBytes + kQBytes <= kSmemLimit ? 2 : 1;
static_assert(kTileN % kDepth == 0 && kStages >= 2);
static_assert(!kIsF8 || (kOwnO && kTileN <= kInColumns));
// A tile's last step computes the next tile's first scores. (The others have no registers for it.)
constexpr bool kChains =
    !kIsOdd && kQInRegisters && kOwnO && !kIsPacked && !kHasDocuments && !kHasSinks;

struct Shared {
  char* q;                   // [kQStages][kBoxes][kTileM][kInColumns]
  char* k;                   // [kStages][kBoxes][kTileN][kInColumns]
  char* v;                   // the same; of e4m3 [kStages][kD][128 keys]
  char* o;                   // [kOutBoxes][kTileM][64]
  Barrier *q_full, *q_free;  // [kQStages]
  Barrier *k_full, *k_free;  // [kStages]
  Barrier *v_full, *v_free;  // [kStages]
  TileQueue next;

  __device__ explicit Shared(char* base) {
    const u32 skip = (1024 - (smem_address(base) & 1023)) & 1023;
    char* p = base + skip;
    q = p, p += kQStages * kQBytes;
    k = p, p += kStages * kKBytes;
    v = p, p += kStages * kVBytes;
    o = kOwnO ? p : q;
    if (kOwnO) p += kOBytes;
    q_full = reinterpret_cast<Barrier*>(p), q_free = q_full + kQStages;
    k_full = q_free + kQStages, k_free = k_full + kStages;
    v_full = k_free + kStages, v_free = v_full + kStages;
    next.full = v_free + kStages, next.free = next.full + 2;
    next.due = next.free + 2;
    next.tile = reinterpret_cast<Tile*>(next.due + 1);
  }
};

// ---- Producer ----------------------------------------------------------------------------------

struct Producer {
  const AttentionParams& p;
  const Shared& s;
  const TensorMap *q_map, *k_map, *v_map;
  Ring<kQStages> q_ring;
  Ring<kStages> k_ring, v_ring;
  Ring<2> next_ring;

  // Rows [row, row + kTileN) of K or V into the next slot of its ring, once that is free.
  template <bool kIsV>
  __device__ void load(Barrier* full, Barrier* free, Ring<kStages>& ring, char* slots,
                       const TensorMap* map, int row, int head, int batch) {
    constexpr int kBytes = kIsV ? kVBytes : kKBytes;
    const u32 slot = ring.slot;
    char* to = slots + slot * kBytes;
    barrier_wait(free + slot, ring.parity ^ 1);
    barrier_arrive_expect(full + slot, kBytes);
    if constexpr (kIsF8 && kIsV) {
      tma_load(to, map, full + slot, kEvictLast, row, 0, head, batch);
    } else {
#pragma unroll
      for (int box = 0; box < kBoxes; ++box)
        tma_load(to + box * (kTileN * kRowBytes), map, full + slot, kEvictLast, box * kInColumns,
                 row, head, batch);
    }
    ring.advance();
  }

  __device__ void load_q(const Tile& t) {
    const u32 slot = q_ring.slot;
    barrier_wait(s.q_free + slot, q_ring.parity ^ 1);
    barrier_arrive_expect(s.q_full + slot, kQBytes);
#pragma unroll
    for (int box = 0; box < kBoxes; ++box)
      tma_load(s.q + slot * kQBytes + box * (kTileM * kRowBytes), q_map, s.q_full + slot,
               kEvictFirst, box * kInColumns, t.row, t.head, t.batch);
    q_ring.advance();
  }

  __device__ void run() {
    for (Tile t = s.next.take<false>(next_ring, p); !t.is_end();
         t = s.next.take<false>(next_ring, p)) {
      const int kv_head = t.head / p.group;
      load_q(t);
      // K runs one tile ahead of V, as the consumers do.
      for (int i = 0; i <= t.n_blocks; ++i) {
        const int row = t.key + i * kTileN;
        if (i == max(0, t.n_blocks - 1)) s.next.ask();
        if (i < t.n_blocks)
          load<false>(s.k_full, s.k_free, k_ring, s.k, k_map, row, kv_head, t.batch);
        if (i > 0)
          load<true>(s.v_full, s.v_free, v_ring, s.v, v_map, row - kTileN, kv_head, t.batch);
      }
    }
  }
};

// ---- Consumers ----------------------------------------------------------------------------------

// A warpgroup's 64 rows: their Q, products with K, and the way of their results.
struct TileConsumer : RowsOfOutput {
  const Shared& s;
  const TensorMap* o_map;
  Ring<kQStages> q_ring;
  Ring<kStages> k_ring, v_ring;
  Ring<2> next_ring;

  u32 q[kQInRegisters ? kOut / kElementsOf4Bytes : 1];  // [64][kD]

  // Turns at the tensor cores, the first of which is warpgroup 0's.
  __device__ void take_first_turn() {
    if (kPingPong && wg == kConsumers - 1) named_arrive(1, 256);
  }
  __device__ void take_turn() {
    if constexpr (kPingPong) named_sync(1 + wg, 256);
  }
  __device__ void pass_turn() {
    if constexpr (kPingPong) named_arrive(1 + (wg + 1) % kConsumers, 256);
  }

  // scores[64][kTileN] = Q[64][kD] · K[kTileN][kD]ᵀ
  __device__ void issue_scores(float (&scores)[kScores]) {
    const SmemOperand b(smem_address(s.k) + k_ring.slot * kKBytes, 16, 8 * kRowBytes);
    fence_registers(scores);
    wgmma_fence();
    const SmemOperand a(smem_address(s.q) + q_slot() * kQBytes + wg * (kRows * kRowBytes), 16,
                        8 * kRowBytes);
#pragma unroll
    for (int i = 0; i < kD / kDepth; ++i) {
      const u32 box = i / 4, within = (i % 4) * 32;
      const u64 keys = b.at(box * (kTileN * kRowBytes) + within);
      if constexpr (kQInRegisters)
        Wgmma<kTileN>::template rs<false>(scores, q + 4 * i, keys, i > 0);
      else
        Wgmma<kTileN>::ss(scores, a.at(box * (kTileM * kRowBytes) + within), keys, i > 0);
    }
    wgmma_commit();
  }

  // Byte offset, within this warpgroup's rows of Q or O, of what this lane gives to an ldmatrix or
  // stmatrix of columns [16 i, 16 i + 16).
  __device__ u32 fragment(int i, u32 lane) const {
    const u32 row = 16 * warp + (lane & 15), chunk = 2 * i + (lane >> 4);
    return wg * (kRows * kRowBytes) + (chunk / 8) * (kTileM * kRowBytes) + swizzled(row, chunk % 8);
  }

  // The slot of the tile whose scores are made.
  __device__ u32 q_slot() const { return q_ring.slot ^ (kQStages - 1); }

  __device__ void take_q() {
    barrier_wait(s.q_full + q_ring.slot, q_ring.parity);
    q_ring.advance();
    if constexpr (kQInRegisters) {
#pragma unroll
      for (int i = 0; i < kD / kDepth; ++i)
        ldmatrix(smem_address(s.q) + fragment(i, lane), q + 4 * i);
      release(s.q_free + q_slot());
    }
  }

  // O / Σ to global memory through shared memory, and the log-sum-exp.
  __device__ void write(const Tile& t, int row) {
    const int first_row = t.row + int(wg) * kRows;
    const bool direct = kIsOdd || (kIsPacked && first_row + kRows > t.s.q_end);
    finish_sums(t, row);
    const bool leader = warp == 0 && elect_one();
    const u32 barrier = 1 + kConsumers + wg;
    if (kOwnO && leader) tma_store_wait_read();  // the tile before this one has left
    named_sync(barrier, 128);
    if (direct) {
      write_rows(t, row);
    } else {
      u32 at = lane;
      asm volatile("" : "+r"(at));  // or places would be held in registers from tile to tile
#pragma unroll
      for (int i = 0; i < kD / 16; ++i)
        stmatrix(smem_address(s.o) + fragment(i, at), result(2 * i, 0), result(2 * i, 1),
                 result(2 * i + 1, 0), result(2 * i + 1, 1));
    }
    if constexpr (kMayLeak) {
      char* place = s.o + wg * (kRows * kRowBytes);
      repair(t, row, [&](int n, int i, int column, u16 bits) {
        if (direct) return put(t, i, column, bits);
        const u32 chunk = column / 8;
        *reinterpret_cast<u16*>(place + (chunk / 8) * (kTileM * kRowBytes) +
                                swizzled(16 * warp + n, chunk % 8) + 2 * (column % 8)) = bits;
      });
    }
    fence_async_proxy();
    named_sync(barrier, 128);
    if (leader && !direct) {
#pragma unroll
      for (int box = 0; box < kOutBoxes; ++box)
        tma_store(o_map, s.o + wg * (kRows * kRowBytes) + box * (kTileM * kRowBytes),
                  box * kBoxColumns, first_row, t.head, t.batch);
      tma_store_commit();
      if (!kOwnO) tma_store_wait_read();
    }
    if (!kOwnO) named_sync(barrier, 128), release(s.q_free + q_slot());
  }

  __device__ Tile take_tile() { return s.next.take<true>(next_ring, p); }

  __device__ void clear_output() {
#pragma unroll
    for (int i = 0; i < kOut; ++i) o[i] = 0.f;
  }

  __device__ void prepare(const Tile& t, int row) {
    clear_output();
    top[0] = top[1] = kNegativeInfinity;
    sum[0] = sum[1] = 0.f;
    take_q();
    find_edges(t, row);
  }
};

}  // namespace tegula::cuda
