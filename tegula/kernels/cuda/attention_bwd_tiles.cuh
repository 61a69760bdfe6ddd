// Shared by the kernels of the attention backward: tiles of 64 rows that pass by a block, products
// of them, and the way of a sum to global memory.
//
// Variant, by -D: TEGULA_HEAD_DIM 64 | 96 | 128 | 192 | 256, masks and scores: attention_score.cuh.
// Tensors may have fewer columns: the others are read as zeros and not written.
#pragma once

#include "tegula/kernels/cuda/attention_bwd_exact.cuh"
#include "tegula/kernels/cuda/ptx/sync.cuh"
#include "tegula/kernels/cuda/ptx/tma.cuh"
#include "tegula/kernels/cuda/ptx/wgmma.cuh"

namespace tegula::cuda {

constexpr int kD = TEGULA_HEAD_DIM;
static_assert(kD == 64 || kD == 96 || kD == 128 || kD == 192 || kD == 256);

constexpr int kBoxes = (kD + kBoxColumns - 1) / kBoxColumns;
constexpr int kBoxBytes = kTile * kRowBytes;
constexpr int kTileBytes = kBoxes * kBoxBytes;  // 64 rows
constexpr int kThreads = 384;
constexpr int kScores = kTile / 2;  // of a thread
constexpr int kOut = kD / 2;

// Two floats as two f16 and back.
__device__ inline u32 pack_f16(float low, float high) {
  u32 packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
__device__ inline float2 unpack_f16(u32 packed) {
  float2 x;
  asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\ncvt.f32.f16 %0, l;\ncvt.f32.f16 %1, h;\n}"
      : "=f"(x.x), "=f"(x.y)
      : "r"(packed));
  return x;
}

// One arrival of a warp that is done reading. TEGULA_CHECKED: of each lane, because racecheck knows
// nothing of what __syncwarp orders, nor of who only arrives at a named barrier
// (docs/kernels/attention_bwd_sm90.md).
#if TEGULA_CHECKED
constexpr u32 kArrivals = 32;
#else
constexpr u32 kArrivals = 1;
#endif
__device__ inline void release_barrier(Barrier* b) {
  __syncwarp();
  if (kArrivals == 32 || threadIdx.x % 32 == 0) barrier_arrive(b);
}
__device__ inline void tell_named(u32 id, u32 n_threads) {
  if (kArrivals == 32)
    named_sync(id, n_threads);
  else
    named_arrive(id, n_threads);
}

// The second of two kernels that need nothing of each other fills the multiprocessors that the
// first leaves idle at its end. It ends after the first, so that what comes next may trust in both.
__device__ inline void begin_side_by_side(const AttentionBwdParams& p) {
  if (!p.is_second) wait_for_grid_before(), start_grid_after();
}
__device__ inline void end_side_by_side(const AttentionBwdParams& p) {
  if (p.is_second) wait_for_grid_before();
}

// ---- Tiles that pass by -------------------------------------------------------------------------

// A ring of 64-row tiles.
template <int kStages>
struct Passing {
  char* tiles;           // [kStages][kBoxes][64][64]
  Barrier *full, *free;  // [kStages]

  __device__ char* tile(u32 slot) const { return tiles + slot * kTileBytes; }

  __device__ void init(u32 n_warps) const {
    for (int i = 0; i < kStages; ++i)
      barrier_init(full + i, 1), barrier_init(free + i, n_warps * kArrivals);
  }

  // By one thread, once the slot is free; its `full` expects `more` bytes besides.
  __device__ void load(const Ring<kStages>& ring, u32 more, const TensorMap* map, int row, int head,
                       int batch) const {
    barrier_wait(free + ring.slot, ring.parity ^ 1);
    barrier_arrive_expect(full + ring.slot, kTileBytes + more);
#pragma unroll
    for (int box = 0; box < kBoxes; ++box)
      tma_load(tile(ring.slot) + box * kBoxBytes, map, full + ring.slot, kEvictLast,
               box * kBoxColumns, row, head, batch);
  }

  // This warp no longer reads the slot.
  __device__ void release(u32 slot) const { release_barrier(free + slot); }
};

// `n_tiles` of 64 rows, which stay: box after box.
__device__ inline void load_block(char* to, int n_tiles, const TensorMap* map, Barrier* full,
                                  int row, int head, int batch) {
  for (int box = 0; box < kBoxes; ++box)
    tma_load(to + box * n_tiles * kBoxBytes, map, full, kEvictFirst, box * kBoxColumns, row, head,
             batch);
}

// ---- Products -----------------------------------------------------------------------------------

// SmemOperand, with 32-bit additions: of 64 bits the compiler makes two additions and a carry, one
// after the other, between a product and the next.
struct TileOperand {
  u32 low, high;
  __device__ TileOperand(u32 address, u32 leading_bytes, u32 stride_bytes)
      : low(address >> 4 | (leading_bytes >> 4) << 16), high(stride_bytes >> 4 | 1u << 30) {}
  __device__ u64 at(u32 offset_bytes) const {
    return u64(high) << 32 | (low + (offset_bytes >> 4));
  }
};

// An address that the compiler takes for new each time: it would otherwise keep the descriptors of
// all of a tile's products in registers that are needed for sums, and spill them.
__device__ inline u32 fresh_address(const char* at) {
  u32 address = smem_address(at);
  asm volatile("" : "+r"(address));
  return address;
}

// The first kSteps · 16 columns of a warpgroup's 64 rows, as operands in registers: what is read
// from shared memory for each product of scores is a bound as near as the tensor cores' own.
template <int kSteps>
struct KeptRows {
  u32 a[kSteps == 0 ? 1 : 4 * kSteps];
  // `rows` are the warpgroup's; boxes are kRowsBox bytes apart.
  template <int kRowsBox>
  __device__ void read(const char* rows) {
    const u32 lane = threadIdx.x % 32, row = 16 * (threadIdx.x / 32 % 4) + (lane & 15);
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const u32 chunk = 2 * i + (lane >> 4);
      ldmatrix(smem_address(rows) + chunk / 8 * kRowsBox + swizzled(row, chunk % 8), a + 4 * i);
    }
  }
};

// out[64][64] = rows[64][kD] · tile[64][kD]ᵀ; boxes of `rows` are kRowsBox bytes apart, and some of
// its columns may be in registers.
template <int kRowsBox, int kSteps = 0>
__device__ inline void issue_scores(float (&out)[kScores], const char* rows, const char* tile,
                                    const KeptRows<kSteps>& kept = {}) {
  const TileOperand a(fresh_address(rows), 16, 8 * kRowBytes);
  const TileOperand b(fresh_address(tile), 16, 8 * kRowBytes);
  fence_registers(out);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < kD / 16; ++i) {
    const u32 box = i / 4, within = (i % 4) * 32;
    if (i < kSteps)
      Wgmma<64>::template rs<false>(out, kept.a + 4 * i, b.at(box * kBoxBytes + within), i > 0);
    else
      Wgmma<64>::ss(out, a.at(box * kRowsBox + within), b.at(box * kBoxBytes + within), i > 0);
  }
  wgmma_commit();
}

// sum[64][kD] += weights[64][64] · tile[64][kD]
__device__ inline void issue_sum(float (&sum)[kOut], const u32 (&weights)[kScores / 2],
                                 const char* tile) {
  const TileOperand b(smem_address(tile), kBoxBytes, 8 * kRowBytes);
  fence_registers(sum);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < kTile / 16; ++i)
    Wgmma<kD>::template rs<true>(sum, weights + 4 * i, b.at(i * 16 * kRowBytes), true);
  wgmma_commit();
}

__device__ inline void pack(u32 (&to)[kScores / 2], const float (&x)[kScores]) {
#pragma unroll
  for (int j = 0; j < kScores / 2; ++j) to[j] = pack_element(x[2 * j], x[2 * j + 1]);
}

// sum[64][kD] · factor to rows [row, end) of `to`, by way of 64 rows of shared memory that nothing
// reads any more, with boxes kRowsBox bytes apart. Rows past `end` belong to others if sequences
// are packed, else the copy engine leaves them out; but it writes 16 bytes at a time, too many for
// a head_dim that is no multiple of 8. `barrier` is the warpgroup's own.
template <int kRowsBox>
__device__ inline void write_rows(const AttentionBwdParams& p, const float (&sum)[kOut],
                                  float factor, char* place, const TensorMap* map,
                                  const AttentionTensor& to, u32 barrier, int row, int end,
                                  int head, int batch) {
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  u32 zero = 0;
#pragma unroll
  for (int i = 0; i < kD / 16; ++i) {
    const u32 r = 16 * warp + (lane & 15), chunk = 2 * i + (lane >> 4);
    u32 packed[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      packed[j] = pack_element(sum[8 * i + 2 * j] * factor, sum[8 * i + 2 * j + 1] * factor);
      if constexpr (kMayLeak) zero = times_zero_plus(packed[j], zero);
    }
    stmatrix(smem_address(place) + (chunk / 8) * kRowsBox + swizzled(r, chunk % 8), packed[0],
             packed[1], packed[2], packed[3]);
  }
  if constexpr (kMayLeak) {
    if ((zero & 0x7FFF7FFF) != 0) *p.leaked = 1;
  }
  if (kIsPacked || p.head_dim % 8 != 0) {
    named_sync(barrier, 128);
    for (int i = int(threadIdx.x % 128); i < kTile * kD / 8; i += 128) {
      const int r = i / (kD / 8), chunk = i % (kD / 8), column = 8 * chunk;
      if (row + r >= end || column >= p.head_dim) continue;
      const u16* from = reinterpret_cast<const u16*>(place + (chunk / 8) * kRowsBox +
                                                     swizzled(u32(r), u32(chunk % 8)));
      u16* at = to.data + batch * to.batch + (row + r) * to.row + head * to.head + column;
      if (column + 8 <= p.head_dim)
        *reinterpret_cast<uint4*>(at) = *reinterpret_cast<const uint4*>(from);
      else
        for (int c = 0; column + c < p.head_dim; ++c) at[c] = from[c];
    }
    return;
  }
  fence_async_proxy();
  named_sync(barrier, 128);
  if (warp == 0 && elect_one()) {
#pragma unroll
    for (int box = 0; box < kBoxes; ++box)
      tma_store(map, place + box * kRowsBox, box * kBoxColumns, row, head, batch);
    tma_store_commit();
    tma_store_wait_read();
  }
}

// ---- Which rows a block owns, and which pass by -------------------------------------------------

// Unit `unit` of one head of one batch entry, for block `index`. Heads of a section
// are worked on at once, so that what passes by stays in L2; the last section may have more, so
// that the longest units are not left for the end.
struct Place {
  int unit, head, batch;
  bool is_at_end = true;  // in the last section
  __device__ Place(int unit, int head, int batch) : unit(unit), head(head), batch(batch) {}
  __device__ Place(int index, int n_units, int n_heads, int heads_total, int heads_per_section,
                   int heads_at_end) {
    const int before_end = heads_total - heads_at_end;
    is_at_end = index >= before_end * n_units;
    const int heads = is_at_end ? heads_at_end : heads_per_section;
    const int first_head =
        is_at_end ? before_end : index / (heads_per_section * n_units) * heads_per_section;
    const int within = index - first_head * n_units;
    unit = within / heads;
    const int head_of_all = first_head + within - unit * heads;
    batch = head_of_all / n_heads;
    head = head_of_all - batch * n_heads;
  }
};

__device__ inline Sequence whole_sequence(const AttentionBwdParams& p) {
  return {0, p.seqlen_q, 0, p.seqlen_k};
}

__device__ inline AttentionScore scores_of(const AttentionBwdParams& p, const Sequence& s,
                                           int batch, int head) {
  return AttentionScore(p.f, s, batch, head, p.n_heads_q, p.seqlen_q, p.seqlen_k, p.scale);
}

// kKeys keys of a KV head, and the tiles of 64 queries (counted from the sequence's first) of which
// some query sees one of them.
template <int kKeys>
struct KeyUnit {
  int unit, key, head, batch;
  Sequence s;
  int slot;  // of the sequence's first tile, in arrays of the workspace
  int first_m, end_m;

  __device__ KeyUnit(const AttentionBwdParams& p, int index)
      : KeyUnit(p, Place(index, p.n_units_k, p.n_heads_kv, p.batch * p.n_heads_kv,
                         p.heads_per_section, p.heads_at_end)) {}
  __device__ KeyUnit(const AttentionBwdParams& p, const Place& at)
      : unit(at.unit), key(at.unit * kKeys), head(at.head), batch(at.batch) {
    s = whole_sequence(p);
    slot = 0;
    bool sees = key < s.k_end;
    if constexpr (kIsPacked) {
      const int part =
          part_of_tile<kKeys>(p.f.cu_seqlens_k, p.f.n_sequences, p.seqlen_k, at.unit, key);
      s = sequence_of_part(p.f, part, p.seqlen_q, p.seqlen_k);
      slot = s.q_begin / kTile + part;
      sees = key < s.k_end && !sees_nothing(p.f, part);
    }
    first_m = end_m = 0;
    if (!sees) return;
    const AttentionScore score = scores_of(p, s, batch, head * p.group);
    const int lo = score.queries(key).lo, hi = score.queries(min(key + kKeys, s.k_end) - 1).hi;
    first_m = (lo - s.q_begin) / kTile;
    if (hi > lo) end_m = (hi - s.q_begin + kTile - 1) / kTile;
    end_m = max(end_m, first_m);
  }
  __device__ int n_steps(const AttentionBwdParams& p) const { return (end_m - first_m) * p.group; }
  // Query tile m of a head, in arrays of the workspace.
  __device__ long long dq_tile(const AttentionBwdParams& p, int head_q, int m) const {
    return static_cast<long long>(batch * p.n_heads_q + head_q) * p.n_tiles_m + slot + m;
  }
  // The queries that see all of the 64 keys from `first` on.
  __device__ Range seen_by(const AttentionBwdParams& p, int first) const {
    if (kHasUserMask || first + kTile > s.k_end) return {0, 0};
    const AttentionScore score = scores_of(p, s, batch, head * p.group);
    return {score.queries(first + kTile - 1).lo, score.queries(first).hi};
  }
};

// kRows queries of a head, and the tiles of kKeys keys from `key` on that some of them see.
template <int kRows, int kKeys>
struct QueryUnit {
  int row, head, batch;
  int part = 0;  // of packed sequences
  Sequence s;
  int key, n_blocks;

  __device__ QueryUnit(const AttentionBwdParams& p, int index) {
    const Place at(index, p.n_units_q, p.n_heads_q, p.batch * p.n_heads_q,
                   p.heads_per_section * p.group, p.heads_at_end * p.group);
    head = at.head, batch = at.batch;
    // With a causal mask the last rows see the most keys and go first.
    const int unit = kIsCausal ? p.n_units_q - 1 - at.unit : at.unit;
    row = unit * kRows;
    s = whole_sequence(p);
    bool sees = true;
    if constexpr (kIsPacked) {
      part = part_of_tile<kRows>(p.f.cu_seqlens_q, p.f.n_sequences, p.seqlen_q, unit, row);
      s = sequence_of_part(p.f, part, p.seqlen_q, p.seqlen_k);
      sees = !sees_nothing(p.f, part);
    }
    key = n_blocks = 0;
    if (!sees || row >= s.q_end) return;
    const AttentionScore score = scores_of(p, s, batch, head);
    const Range first = score.keys(row), last = score.keys(min(row + kRows, s.q_end) - 1);
    key = first.lo;
    n_blocks = max(0, last.hi - key + kKeys - 1) / kKeys;
  }
  // The tile of the workspace that row `first` of the sequence, a multiple of 64 from its begin, is
  // in.
  __device__ int slot(int first) const {
    if constexpr (!kIsPacked) return first / kTile;
    return s.q_begin / kTile + part + (first - s.q_begin) / kTile;
  }
};

// Query tile m of the unit's sequence and its lse, or of dO and its delta, into the ring's slot.
template <int kStages, int kKeys>
__device__ inline void load_rows(const AttentionBwdParams& p, const Passing<kStages>& to,
                                 float* numbers, const Ring<kStages>& ring, const TensorMap* map,
                                 const float* from, const KeyUnit<kKeys>& t, int m, int head) {
  to.load(ring, kTile * 4, map, t.s.q_begin + m * kTile, head, t.batch);
  bulk_load(numbers + ring.slot * kTile, from + t.dq_tile(p, head, m) * kTile, kTile * 4,
            to.full + ring.slot);
}

// ---- Weights, transposed: 64 keys × 64 queries --------------------------------------------------

// The derivative of a score by scale · q · k is not 1.
constexpr bool kHasSlope = kHasSoftcap || kHasUserScore;

// Weights take so many registers that nothing else should be going on.
constexpr bool kIsHeavy = kModifies || kHasDropout || kHasUserMask;

// The queries that see each of a thread's two keys, `key` and key + 8.
struct SeenKeys {
  Range r[2];
  __device__ SeenKeys(const AttentionScore& score, int key) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      r[i] = key + 8 * i < score.s.k_end ? score.queries(key + 8 * i) : Range{0, 0};
  }
};

// A raw product to the score of query i and key j, if these see each other; returns its slope.
__device__ inline float to_score(float& x, const AttentionScore& score, int i, int j, bool sees) {
  float slope = 1.f;
  if constexpr (kModifies) {
    if (sees) {
      if constexpr (kHasSlope)
        x = score(x, i, j, slope);
      else
        x = score(x, i, j);
    }
  }
  return slope;
}

// Which of a thread's elements, queries row + 8 i and row + 8 i + 1 of keys `key` and key + 8,
// dropout keeps.
template <int kElements, bool kShares = true>
__device__ inline u32 kept_transposed(const AttentionScore& score, int row, int key) {
  if constexpr (kHasDropout) return score.kept_transposed<kElements, kShares>(row, key);
  return ~0u;
}

// Sᵀ in x to Pᵀ after dropout, which put(index, P, P of the next query) takes, and to what dP -
// delta is multiplied with in x. Elements and `kept` are those of kept_transposed; lse2(i) is of
// queries row + 8 i and row + 8 i + 1.
template <bool kMasked, int kElements, class Put, class Lse>
__device__ inline void weigh_transposed(float (&x)[kElements], Put put, u32 kept,
                                        const AttentionScore& score, const SeenKeys& seen, Lse lse2,
                                        int row, int key, float scale_log2) {
  const float factor =
      kIsF32 ? AttentionScore::factor(score.scale) : AttentionScore::factor_log2(scale_log2);
#pragma unroll
  for (int i = 0; i < kElements / 4; ++i) {
    const float2 l = lse2(i);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float weight[2];
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int e = 4 * i + 2 * r + c, q = row + 8 * i + c, k = key + 8 * r;
        bool sees = true;
        if constexpr (kMasked) {
          sees = q >= seen.r[r].lo && q < seen.r[r].hi;
          if constexpr (kHasUserMask) sees = sees && score.user_sees(q, k);
        }
        const float slope = to_score(x[e], score, q, k, sees);
        const float above = __fmaf_rn(x[e], factor, c == 0 ? -l.x : -l.y);
        float w = exp2_approx(kIsF32 ? above * kLog2e : above);
        if constexpr (kMasked) w = sees ? w : 0.f;
        x[e] = kHasSlope ? w * slope : w;
        weight[c] = w;
        if constexpr (kHasDropout) weight[c] = kept >> e & 1 ? w * score.f.keep_factor : 0.f;
      }
      put(2 * i + r, weight[0], weight[1]);
    }
    // Keeps the compiler from reading all of a bias first.
    if constexpr (kIsHeavy) asm volatile("" ::: "memory");
  }
}

// The operations of a thread's pairs: two products of scores and two of sums, weights and dS; with
// kMakesDq one of sums more.
template <int kElements, bool kMakesDq>
__device__ inline void count_transposed(const AttentionBwdParams& p, const AttentionScore& score,
                                        int row, int key) {
  if constexpr (kCounts)
    count_flops(pairs_seen<kElements, true>(score, row, key) *
                u64(kScoreFlops + 5 + (8 + 2 * kMakesDq) * p.head_dim + 2 * kHasDropout +
                    (kBias != 0) + 3 * kHasSoftcap));
}
// The operations of dQ where it has a kernel of its own, which makes scores and weights once more.
template <int kElements>
__device__ inline void count_dq(const AttentionBwdParams& p, const AttentionScore& score, int row,
                                int column) {
  if constexpr (kCounts)
    count_flops(pairs_seen<kElements>(score, row, column) * u64(2 * p.head_dim));
}

// This thread's two of eight queries, in shared memory.
struct EightFrom {
  const float* at;
  __device__ float2 operator()(int i) const { return *reinterpret_cast<const float2*>(at + 8 * i); }
};

// The weights that weigh_transposed puts for products of 16 bits.
struct PackInto {
  u32* to;
  __device__ void operator()(int i, float a, float b) const { to[i] = pack_element(a, b); }
};

// dSᵀ of an element, given dPᵀ.
__device__ inline float d_score(float weight, float dp, float delta, u32 kept, int e,
                                float keep_factor) {
  if constexpr (kHasDropout) dp = kept >> e & 1 ? dp * keep_factor : 0.f;
  return weight * (dp - delta);
}

// Queries share a bias: a warp adds up theirs before it adds to memory, where one term after the
// other would round more than a naive sum does.
__device__ inline bool shares_bias(const AttentionBwdParams& p) {
  return p.d_bias_sums && p.d_bias_row == 0;
}

// dS of query i and key j, before the slope of their score, to the gradient of a bias, if it
// counts. Lanes of a warp come together; those four apart have the same key.
__device__ inline void add_bias_gradient(const AttentionBwdParams& p, const AttentionScore& score,
                                         int i, int j, float ds, bool counts) {
  if (p.d_bias == nullptr) return;
  if (shares_bias(p)) {
    if (!counts) ds = 0.f;
#pragma unroll
    for (int apart = 4; apart < 32; apart *= 2) ds += __shfl_xor_sync(0xffffffff, ds, apart);
    counts = threadIdx.x % 32 < 4 && ds != 0.f;
  }
  if (!counts) return;
  float* at =
      p.d_bias + score.batch * p.d_bias_batch + score.head * p.d_bias_head + i * p.d_bias_row + j;
  if (p.d_bias_sums)
    atomicAdd(at, ds);
  else
    *at = ds;
}

}  // namespace tegula::cuda
