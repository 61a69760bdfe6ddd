// The Hopper attention forward's variant, shared memory, tiles of work, and the warp that loads
// them; attention_sm90.cu says how it works.
#pragma once

#include "tegula/kernels/cuda/attention_params.h"
#include "tegula/kernels/cuda/attention_score.cuh"
#include "tegula/kernels/cuda/ptx/mbarrier.cuh"
#include "tegula/kernels/cuda/ptx/sync.cuh"
#include "tegula/kernels/cuda/ptx/tma.cuh"

namespace tegula::cuda {

constexpr int kD = TEGULA_HEAD_DIM;
constexpr int kTileN = TEGULA_TILE_N;
constexpr int kConsumers = TEGULA_CONSUMERS;
constexpr int kStages = TEGULA_STAGES;
constexpr bool kPingPong = TEGULA_PING_PONG;
constexpr bool kQInRegisters = TEGULA_Q_REGISTERS;
constexpr float kLazyLog2 = TEGULA_LAZY_LOG2;

#ifndef TEGULA_ODD
#define TEGULA_ODD 0
#endif
// The tensors' head_dim is no multiple of 8: the copy engine would write what lies behind a row of
// O, up to the next 16 bytes.
constexpr bool kIsOdd = TEGULA_ODD;

constexpr int kRows = 64;                   // query rows of a warpgroup
constexpr int kTileM = kRows * kConsumers;  // query rows of a block
constexpr int kElementsOf4Bytes = kIsF8 ? 4 : 2;
constexpr int kDepth = 8 * kElementsOf4Bytes;       // what an instruction of the tensor cores sums
constexpr int kInColumns = 32 * kElementsOf4Bytes;  // of a box of Q or K, 128 bytes
constexpr int kBoxes = (kD + kInColumns - 1) / kInColumns;
constexpr int kOutBoxes = (kD + kBoxColumns - 1) / kBoxColumns;
constexpr int kThreads = 128 * (1 + kConsumers);
// Not for producers that find a tile's keys.
constexpr bool kAllRegisters = (kD == 256 || kIsF8) && !kHasStart && !kIsPacked;
constexpr int kProducerRegisters = kConsumers == 3 ? 32 : kAllRegisters ? 24 : 40;
constexpr int kConsumerRegisters = kConsumers == 3 ? 160 : kAllRegisters ? 240 : 232;
constexpr int kQBytes = kBoxes * kTileM * kRowBytes;
constexpr int kOBytes = kOutBoxes * kTileM * kRowBytes;
constexpr int kKBytes = kBoxes * kTileN * kRowBytes;
constexpr int kVBytes = kIsF8 ? kD * kRowBytes : kKBytes;  // of e4m3: Vᵀ, 128 keys wide
constexpr int kKvBytes = kKBytes + kVBytes;
constexpr int kSmemLimit = 227 * 1024 - 1024;  // less what aligning to 1024 may take
constexpr int kBarrierBytes = 512;
// O leaves through a place of its own if there is room, else through Q's.
constexpr bool kOwnO = kQBytes + kOBytes + kStages * kKvBytes + kBarrierBytes <= kSmemLimit;
static_assert(kQBytes + kStages * kKvBytes + kBarrierBytes <= kSmemLimit);
static_assert(kTileN % kDepth == 0 && kStages >= 2);
static_assert(!kIsF8 || (kOwnO && kTileN <= kInColumns));
// A tile's last step computes the next tile's first scores. (The others have no registers for it.)
constexpr bool kChains = kQInRegisters && kOwnO && !kIsPacked && !kHasDocuments && !kHasSinks;
// Each row's keys are found once for a tile; otherwise the bounds are a subtraction away.
constexpr bool kHasRanges = kHasStart || kIsPacked;
// Every score needs work, not those at a mask's edge only.
// (Documents: to find the tiles without an edge takes registers that d256 does not have.)
constexpr bool kAlwaysMasks = kHasUserMask || kModifies || (kHasDocuments && kD == 256);
// A tile may hold values that some of its rows do not see (past the tensor's end it reads as 0).
constexpr bool kMayLeak = kIsCausal || kHasRanges || kHasUserMask;

struct Shared {
  char* q;  // [kBoxes][kTileM][kInColumns]
  char* k;  // [kStages][kBoxes][kTileN][kInColumns]
  char* v;  // the same; of e4m3 [kStages][kD][128 keys]
  char* o;  // [kOutBoxes][kTileM][64]
  Barrier *q_full, *q_free;
  Barrier *k_full, *k_free;        // [kStages]
  Barrier *v_full, *v_free;        // [kStages]
  Barrier *next_full, *next_free;  // [2]
  u32* next;                       // [2] tile numbers

  __device__ explicit Shared(char* base) {
    const u32 skip = (1024 - (smem_address(base) & 1023)) & 1023;
    char* p = base + skip;
    q = p, p += kQBytes;
    k = p, p += kStages * kKBytes;
    v = p, p += kStages * kVBytes;
    o = kOwnO ? p : q;
    if (kOwnO) p += kOBytes;
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
  int key = 0;   // the first key of the first of them
  Sequence s;
  float qk_scale, v_scale;  // of e4m3: of a raw product of q and k, of a raw sum of values

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
    s = {0, p.seqlen_q, 0, p.seqlen_k};
    if constexpr (kIsF8) {
      qk_scale = p.scale * descale(p, p.q_descale) * descale(p, p.k_descale);
      v_scale = descale(p, p.v_descale);
    }
    if constexpr (kIsPacked) {
      const int part =
          part_of_tile<kTileM>(p.f.cu_seqlens_q, p.f.n_sequences, p.seqlen_q, row / kTileM, row);
      s = sequence_of_part(p.f, part, p.seqlen_q, p.seqlen_k);
      if (sees_nothing(p.f, part)) s.k_end = s.k_begin;
    }
    if constexpr (kHasRanges) {
      n_blocks = 0;
      if (row < s.q_end) {
        const AttentionScore score = scores(p);
        key = score.keys(row).lo;
        if (kIsF8) key -= key % 16;  // in Vᵀ the order of keys within 16 is its own
        const int end = score.keys(min(row + kTileM, s.q_end) - 1).hi;
        n_blocks = (end - key + kTileN - 1) / kTileN;
      }
      return;
    }
    int keys = p.seqlen_k;
    if (kIsCausal) keys = min(keys, min(row + kTileM, p.seqlen_q) + p.seqlen_k - p.seqlen_q);
    n_blocks = max(0, (keys + kTileN - 1) / kTileN);
  }
  __device__ AttentionScore scores(const AttentionParams& p) const {
    return AttentionScore(p.f, s, batch, head, p.n_heads_q, p.seqlen_q, p.seqlen_k, scale(p));
  }
  // Of a raw product of q and k.
  __device__ float scale(const AttentionParams& p) const { return kIsF8 ? qk_scale : p.scale; }
  __device__ float descale(const AttentionParams& p, const AttentionDescale& of) const {
    return of.data == nullptr ? 1.f : of.data[batch * of.batch + head / p.group * of.head];
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
    barrier_wait(s.q_free, q_ring.parity ^ 1);
    barrier_arrive_expect(s.q_full, kQBytes);
#pragma unroll
    for (int box = 0; box < kBoxes; ++box)
      tma_load(s.q + box * (kTileM * kRowBytes), q_map, s.q_full, kEvictFirst, box * kInColumns,
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
        const int row = t.key + i * kTileN;
        if (i < t.n_blocks)
          load<false>(s.k_full, s.k_free, k_ring, s.k, k_map, row, kv_head, t.batch);
        if (i > 0)
          load<true>(s.v_full, s.v_free, v_ring, s.v, v_map, row - kTileN, kv_head, t.batch);
      }
      index = next;
    }
  }
};

}  // namespace tegula::cuda
