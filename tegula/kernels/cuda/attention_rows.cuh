// Shared by the attention forwards on Hopper: tiles of work and how blocks draw them, and a
// warpgroup's 64 rows of scores on their way to weights.
//
// Variant, by -D: TEGULA_HEAD_DIM, TEGULA_TILE_N, TEGULA_CONSUMERS, TEGULA_LAZY_LOG2 as in
// attention_sm90.cu; TEGULA_F32; masks and score functions: attention_score.cuh.
#pragma once

#include "tegula/kernels/cuda/attention_exact.cuh"
#include "tegula/kernels/cuda/attention_params.h"
#include "tegula/kernels/cuda/attention_score.cuh"
#include "tegula/kernels/cuda/ptx/mbarrier.cuh"
#include "tegula/kernels/cuda/ptx/sync.cuh"

namespace tegula::cuda {

constexpr int kD = TEGULA_HEAD_DIM;
constexpr int kTileN = TEGULA_TILE_N;
constexpr int kConsumers = TEGULA_CONSUMERS;
constexpr float kLazyLog2 = TEGULA_LAZY_LOG2;

constexpr int kRows = 64;                   // query rows of a warpgroup
constexpr int kTileM = kRows * kConsumers;  // query rows of a block
constexpr int kThreads = 128 * (1 + kConsumers);
// Each row's keys are found once for a tile; otherwise the bounds are a subtraction away.
constexpr bool kHasRanges = kHasStart || kIsPacked || kIsPaged;
// Every score needs work, not those at a mask's edge only.
// (Documents: to find the tiles without an edge takes registers that d256 does not have; in f32 it
// has none for two copies of a step.)
constexpr bool kAlwaysMasks = kHasUserMask || kModifies || (kD == 256 && (kHasDocuments || kIsF32));
// A tile may hold values that some of its rows do not see (past the tensor's end it reads as 0).
constexpr bool kMayLeak = kIsCausal || kHasRanges || kHasUserMask;

// A tile of work: rows [row, row + kTileM) of one head, of which some may lie outside the tensor.
struct Tile {
  int row, head, batch;
  int n_blocks;  // K tiles that some row sees; < 0 behind the last tile
  int key = 0;   // the first key of the first of them
  Sequence s;
  float qk_scale, v_scale;  // of e4m3: of a raw product of q and k, of a raw sum of values

  Tile() = default;
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
    row = (p.n_tiles_m - 1 - m) * kTileM - p.row_shift;
    s = {0, p.seqlen_q, 0, p.seqlen_k};
#if TEGULA_PAGED
    s.index = batch;
    if constexpr (!kIsPacked) s.k_end = keys_in_pages(p.f, batch);
#endif
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
        key = score.keys(max(row, 0)).lo;
        if (kIsF8) key -= key % 16;  // in Vᵀ the order of keys within 16 is its own
        // A query's bits depend neither on those beside it nor on which came before.
        if (kIsPaged) key -= key % kTileN;
        const int end = score.keys(min(row + kTileM, s.q_end) - 1).hi;
        n_blocks = (end - key + kTileN - 1) / kTileN;
      }
      return;
    }
    int keys = p.seqlen_k;
    if (kIsCausal) keys = min(keys, min(row + kTileM, p.seqlen_q) + p.seqlen_k - p.seqlen_q);
    n_blocks = max(0, (keys + kTileN - 1) / kTileN);
  }
  __device__ bool is_end() const { return n_blocks < 0; }
  __device__ AttentionScore scores(const AttentionParams& p) const {
    return AttentionScore(p.f, s, batch, head, p.n_heads_q, p.seqlen_q, p.seqlen_k, scale(p));
  }
  // The scale of a raw product of q and k.
  __device__ float scale(const AttentionParams& p) const { return kIsF8 ? qk_scale : p.scale; }
  // Finds the factors of this tile.
  __device__ void find_factors(const AttentionParams& p) {
    const int kv_head = head / p.group;
    const auto get = [&](const AttentionDescale& of) {
      return of.data == nullptr ? 1.f : of.data[batch * of.batch + kv_head * of.head];
    };
    const float q = get(p.q_descale), k = get(p.k_descale);
    v_scale = get(p.v_descale), qk_scale = p.scale * q * k;
  }
};

// Tiles in shared memory. One thread draws their numbers from the launch's counter, a little before
// the producer needs them: a number takes a µs to come, and its divisions some of the rest. (Drawn
// a whole tile ahead, the launch's last tiles would wait behind others while blocks have none.)
struct TileQueue {
  Barrier *full, *free;  // [2]
  Barrier* due;
  Tile* tile;  // [2]

  __device__ void init(u32 n_takers) const {
    for (int i = 0; i < 2; ++i) barrier_init(full + i, 1), barrier_init(free + i, n_takers);
    barrier_init(due, 1);
  }
  __device__ void deal(const AttentionParams& p) const {
    Ring<2> ring;
    for (u32 drawn = blockIdx.x, parity = 0; true; parity ^= 1) {
      const bool is_tile = drawn < u32(p.n_tiles);
      Tile t(p, is_tile ? int(drawn) : 0);
      if constexpr (kIsF8) t.find_factors(p);
      if (!is_tile) t.n_blocks = -1;
      barrier_wait(free + ring.slot, ring.parity ^ 1);
      tile[ring.slot] = t;
      barrier_arrive(full + ring.slot);
      ring.advance();
      if (drawn == u32(p.n_tiles) + gridDim.x - 1) *p.counter = 0;  // the last draw of all
      if (!is_tile) return;
      barrier_wait(due, parity);
      drawn = gridDim.x + atomicAdd(p.counter, 1);
    }
  }
  // By the producer, once for each tile, when it will soon need the next.
  __device__ void ask() const { barrier_arrive(due); }
  // By the producer, and by each warp of the consumers.
  template <bool kIsWarp>
  __device__ Tile take(Ring<2>& ring, const AttentionParams& p) const {
    barrier_wait(full + ring.slot, ring.parity);
    Tile t;
    if (!kIsWarp || threadIdx.x % 32 == 0) {  // one lane, so that it may say when it has read
      t = tile[ring.slot];
      barrier_arrive(free + ring.slot);
    }
    if constexpr (kIsWarp) {
      for (int* x : {&t.row, &t.head, &t.batch, &t.n_blocks}) *x = int(uniform(u32(*x)));
      if constexpr (kHasRanges) t.key = int(uniform(u32(t.key)));
      if constexpr (kIsPacked)
        for (int* x : {&t.s.q_begin, &t.s.q_end, &t.s.k_begin, &t.s.k_end})
          *x = int(uniform(u32(*x)));
      if constexpr (kIsF8)
        for (float* x : {&t.qk_scale, &t.v_scale})
          *x = __uint_as_float(uniform(__float_as_uint(*x)));
    }
    if constexpr (!kHasRanges) t.key = 0;
    if constexpr (!kIsPacked) t.s = {0, p.seqlen_q, 0, p.seqlen_k};
    ring.advance();
    return t;
  }
};

// Two rows of a thread, of the 64 of its warpgroup.
struct RowsOfWarpgroup {
  static constexpr int kScores = kTileN / 2;  // scores of a thread: 2 rows × kTileN / 4
  // Weights are 1 / kWeightUnit times what they stand for.
  static constexpr float kShiftLog2 = kIsF8 ? 8.f : 0.f;
  static constexpr float kWeightUnit = kIsF8 ? 0x1p-8f : 1.f;

  const AttentionParams& p;
  u32 wg;    // 0..kConsumers-1
  u32 lane;  // 0..31
  u32 warp;  // 0..3

  float top[2], sum[2];            // reference maximum (unscaled), Σ of weights
  float grow[2];                   // what O is to be multiplied with
  Range seen[kHasRanges ? 2 : 1];  // keys of the rows
  int begin, whole, from, to;      // find_edges
  bool rescale;

  // This warp no longer reads what the barrier guards.
  __device__ void release(Barrier* b) {
    __syncwarp();
    if (lane == 0) barrier_arrive(b);
  }

  // Raw products to scores, of this thread's two rows; -inf where a row does not see the key.
  __device__ void score(float (&scores)[kScores], const Tile& t, int row, int block) const {
    const int column = t.key + block * kTileN + 2 * int(lane % 4);
    const AttentionScore of = t.scores(p);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int i = min(row + 8 * r, t.s.q_end - 1);
      int begin = 0, end = p.seqlen_k;
      if (kIsCausal) end = min(end, row + 8 * r + 1 + p.seqlen_k - p.seqlen_q);
      if constexpr (kHasRanges) begin = seen[r].lo, end = seen[r].hi;
      begin -= column, end -= column;
#pragma unroll
      for (int n = 0; n < kTileN / 8; ++n)
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const int at = 8 * n + c;
          float& x = scores[4 * n + 2 * r + c];
          bool sees = at < end;
          if constexpr (kHasStart) sees = sees && at >= begin;
          if constexpr (kHasUserMask) sees = sees && of.user_sees(i, column + at);
          if constexpr (kModifies) {
            if (sees) x = of(x, i, column + at);
          }
          if (!sees) x = kNegativeInfinity;
        }
    }
  }

  // Counts a block's pairs: the product, the score, its weight, the sum of values.
  __device__ void count(const Tile& t, int row, int block) const {
    if constexpr (kCounts)
      count_flops(
          pairs_seen<kScores>(t.scores(p), row, t.key + block * kTileN + 2 * int(lane % 4)) *
          u64(kScoreFlops + 4 + 4 * p.head_dim + kHasDropout));
  }
  // And a row that sees any, at its end; e4m3's factors besides, of which a head has two.
  __device__ void count_row(const Tile& t, int i) const {
    if (i < t.s.q_begin || lane % 4 != 0) return;
    const Range keys = t.scores(p).keys(i);
    const bool has_factors = kIsF8 && p.q_descale.data != nullptr;
    if (keys.hi > keys.lo) count_flops(3 + p.head_dim + has_factors);
    if (has_factors && i == 0) count_flops(2);
  }

  // The largest of a tile's scores in each row.
  __device__ static void find_top(const float (&scores)[kScores], float (&block_top)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float m = fmaxf(scores[2 * r], scores[2 * r + 1]);
#pragma unroll
      for (int i = 1; i < kTileN / 8; ++i)
        m = fmaxf(m, fmaxf(scores[4 * i + 2 * r], scores[4 * i + 2 * r + 1]));
      m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, 1));
      block_top[r] = fmaxf(m, __shfl_xor_sync(0xffffffff, m, 2));
    }
  }
  // Moves `top`, and the sums with it; of keys in pages only where this row itself asks for it.
  __device__ void raise(const float (&block_top)[2], float factor, float slack = 0.f) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float next =
          kIsPaged && !(block_top[r] > top[r] + slack) ? top[r] : fmaxf(top[r], block_top[r]);
      grow[r] = next == kNegativeInfinity ? 1.f : exp2_approx((top[r] - next) * factor);
      top[r] = next;
      sum[r] *= grow[r];
    }
  }

  // Scores become weights relative to `top`, which moves only when some row of the warp grew by
  // more than 2^kLazyLog2: until then weights above 1 are as exact as those below, and O need not
  // be touched.
  //
  // Weights of e4m3 go up to 2^kShiftLog2, which leaves the small ones more of its range; there
  // every maximum counts, since O is multiplied anyway.
  __device__ void softmax(float (&scores)[kScores], const Tile& t) {
    float block_top[2];
    find_top(scores, block_top);
    const float factor = AttentionScore::factor_log2(kIsF8 ? t.scale(p) * kLog2e : p.scale_log2);
    // In f32 finite under a tiny scale too: -inf + inf would be no number to compare with.
    const float slack = kIsF32 ? fminf(kLazyLog2 / factor, 1e38f) : kLazyLog2 / factor;
    rescale = kIsF8 || __any_sync(0xffffffff,
                                  block_top[0] > top[0] + slack || block_top[1] > top[1] + slack);
    if (rescale) raise(block_top, factor, slack);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float reference = top[r] == kNegativeInfinity ? 0.f : top[r];
      const float shift =
          top[r] == kNegativeInfinity ? 0.f : __fmaf_rn(-top[r], factor, kShiftLog2);
#pragma unroll
      for (int i = 0; i < kTileN / 8; ++i)
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float& x = scores[4 * i + 2 * r + c];
          // In f32 the rounding of `shift`, another after each rescaling, would be what is seen.
          if constexpr (kIsF32)
            x = exp2_approx((x - reference) * factor);
          else
            x = exp2_approx(__fmaf_rn(x, factor, shift));
        }
      float add[2] = {scores[2 * r], scores[2 * r + 1]};
#pragma unroll
      for (int i = 1; i < kTileN / 8; ++i)
#pragma unroll
        for (int c = 0; c < 2; ++c) add[c] += scores[4 * i + 2 * r + c];
      sum[r] += add[0] + add[1];
    }
  }

  // The same of 16 bits, rounded, without a look at the maximum: the sum of the new weights tells
  // when one of them is above 2^kLazyLog2, or when a row had none to refer to (its `top` of -inf
  // makes inf or no number of it). Only then `top` moves and the weights are made again.
  template <bool kIsFirst>
  __device__ void weigh(const float (&scores)[kScores], u32 (&weights)[kScores / 2]) {
    const float factor = AttentionScore::factor_log2(p.scale_log2);
    float add[2][2];
    rescale = kIsFirst;
    while (true) {
      if (rescale) {
        float block_top[2];
        find_top(scores, block_top);
        raise(block_top, factor);
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float shift = rescale && top[r] == kNegativeInfinity ? 0.f : -top[r] * factor;
        add[r][0] = add[r][1] = 0.f;
#pragma unroll
        for (int i = 0; i < kTileN / 8; ++i) {
          float x[2];
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            x[c] = exp2_approx(__fmaf_rn(scores[4 * i + 2 * r + c], factor, shift));
            add[r][c] += x[c];
          }
          weights[2 * i + r] = pack_element(x[0], x[1]);
        }
      }
      constexpr float kLimit = 1 << TEGULA_LAZY_LOG2;
      const float all = (add[0][0] + add[0][1]) + (add[1][0] + add[1][1]);
      if (rescale || !__any_sync(0xffffffff, !(all <= kLimit))) break;
      rescale = true;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) sum[r] += add[r][0] + add[r][1];
  }

  // clear(e) of the weights e that dropout leaves out.
  template <class Clear>
  __device__ void drop(const Tile& t, int row, int block, Clear clear) const {
    const int column = t.key + block * kTileN + 2 * int(lane % 4);
    const AttentionScore of = t.scores(p);
    constexpr int kLast = kTileN % 64 == 0 ? 32 : kTileN % 64 / 2;  // elements of the last part
#pragma unroll
    for (int first = 0; first < kTileN / 8; first += 8) {
      const int end = min(first + 8, kTileN / 8);
      const u32 kept = end - first == 8 ? of.kept<32>(row, column + 8 * first)
                                        : of.kept<kLast>(row, column + 8 * first);
#pragma unroll
      for (int e = 4 * first; e < 4 * end; ++e)
        if (!(kept >> (e - 4 * first) & 1)) clear(e);
    }
  }

  // The warpgroup has rows in the tensor.
  __device__ bool is_real(const Tile& t) const {
    const int first_row = t.row + int(wg) * kRows;
    return first_row >= 0 && first_row < t.s.q_end;
  }

  // This thread's first row of a tile.
  __device__ int row_of_tile(const Tile& t) const {
    return t.row + int(wg) * kRows + int(warp) * 16 + int(lane / 4);
  }

  // Blocks [begin, whole) of a tile are seen whole by every row of the warpgroup; those outside
  // [from, to) by none.
  __device__ void find_edges(const Tile& t, int row) {
    const int first_row = t.row + int(wg) * kRows;
    begin = from = 0, whole = p.seqlen_k / kTileN, to = t.n_blocks;
    if (kIsCausal) {
      const int keys = first_row + p.seqlen_k - p.seqlen_q;  // before the first row's own
      whole = min(whole, max(0, keys + 1) / kTileN);
      to = min(to, max(0, keys + kRows + kTileN - 1) / kTileN);
    }
    if constexpr (kHasRanges) {
      const AttentionScore of = t.scores(p);
      for (int r = 0; r < 2; ++r) seen[r] = of.keys(max(0, min(row + 8 * r, t.s.q_end - 1)));
      const Range first = of.keys(max(0, min(first_row, t.s.q_end - 1)));
      const Range last = of.keys(max(0, min(first_row + kRows, t.s.q_end) - 1));
      from = (first.lo - t.key) / kTileN;
      to = min(t.n_blocks, (last.hi - t.key + kTileN - 1) / kTileN);
      if constexpr (!kAlwaysMasks) {
        begin = (last.lo - t.key + kTileN - 1) / kTileN;
        whole = (first.hi - t.key) / kTileN;
      }
    }
    if (!is_real(t)) to = 0;
    from = min(from, to);
    if (kAlwaysMasks) whole = 0;
  }

  __device__ static float ln(float x) { return kIsF32 ? logf(x) : __logf(x); }

  // Sums of weights to shares, and the log-sum-exp to global memory; leaves it in `top`.
  __device__ void finish_sums(const Tile& t, int row) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum[r] += __shfl_xor_sync(0xffffffff, sum[r], 1);
      sum[r] += __shfl_xor_sync(0xffffffff, sum[r], 2);
      if constexpr (kIsF8) sum[r] *= kWeightUnit;
      const float reference = top[r] * AttentionScore::factor(t.scale(p));
      float lse = reference + ln(sum[r]), share = 1.f / sum[r];
      if constexpr (kHasSinks) {
        const float sink = p.f.sinks[t.head], m = fmaxf(reference, sink);
        const float keys = exp2_approx((reference - m) * kLog2e);
        const float total = __fmaf_rn(sum[r], keys, exp2_approx((sink - m) * kLog2e));
        lse = sum[r] == 0.f ? sink : m + ln(total);
        share = keys / total;
      } else if (sum[r] == 0.f) {
        lse = kNegativeInfinity;
      }
      sum[r] = sum[r] == 0.f ? 0.f : share;
      if constexpr (kHasDropout) sum[r] *= p.f.keep_factor;
      if constexpr (kIsF8) sum[r] *= kWeightUnit * t.v_scale;
      top[r] = lse;
      if (kCounts && row + 8 * r < t.s.q_end) count_row(t, row + 8 * r);
      if (lane % 4 == 0 && row + 8 * r < t.s.q_end) {
        const int head_of_all = t.batch * p.n_heads_q + t.head;
        const int rows = kIsPaged ? p.f.lse_rows : p.seqlen_q;
        p.lse[static_cast<long long>(head_of_all) * rows + row + 8 * r] = lse;
      }
    }
  }
};

// The same with their sums of values, and the results of 16 bits that come of them.
struct RowsOfOutput : RowsOfWarpgroup {
  static constexpr int kOut = kD / 2;

  float o[kOut];  // [64 rows][kD]

  // Two neighbouring columns of O, given as columns [8 i, 8 i + 8) and a row of this thread.
  __device__ u32 result(int i, int r) const {
    return pack_element(o[4 * i + 2 * r] * sum[r], o[4 * i + 2 * r + 1] * sum[r]);
  }

  // Whether some result of this thread's row is not finite.
  __device__ bool leaks(int r) const {
    u32 zero[4] = {};  // four chains
#pragma unroll
    for (int i = 0; i < kD / 8; ++i) zero[i % 4] = times_zero_plus(result(i, r), zero[i % 4]);
    return ((zero[0] | zero[1] | zero[2] | zero[3]) & 0x7FFF7FFF) != 0;
  }

  __device__ u16* row_in_memory(const Tile& t, int i) const {
    return p.o.data + t.batch * p.o.batch + i * p.o.row + t.head * p.o.head;
  }
  __device__ void put(const Tile& t, int i, int column, u16 bits) const {
    if (column < p.head_dim) row_in_memory(t, i)[column] = bits;
  }

  // Rows of this warp that came out not finite, once more, without the keys that they don't see:
  // put_row(row of the warp, row of the tensor, column, bits).
  template <class Put>
  __device__ void repair(const Tile& t, int row, Put put_row) const {
    const u32 leaking = (leaks(0) ? 1 : 0) | (leaks(1) ? 2 : 0);
    if (!__any_sync(0xffffffff, leaking != 0)) return;
    __syncwarp();
    const AttentionScore of = t.scores(p);
#pragma unroll 1
    for (int n = 0; n < 16; ++n) {
      const int r = n / 8, i = row - int(lane / 4) + n;
      const float lse = __shfl_sync(0xffffffff, r == 0 ? top[0] : top[1], 4 * (n % 8));
      const bool bad = r == 0 ? leaking & 1 : leaking & 2;
      if (!__any_sync(0xffffffff, bad && int(lane / 4) == n % 8) || i >= t.s.q_end) continue;
      const float by = kIsF8 ? t.v_scale : 1.f;
      attend_exactly<kD>(p, of, i, lse, [=](int column, float x) {
        put_row(n, i, column, u16(pack_element(x * by, 0.f)));
      });
    }
  }

  // O / Σ straight to global memory, without the rows that are another sequence's.
  __device__ void write_rows(const Tile& t, int row) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (row + 8 * r >= t.s.q_end) continue;
      u16* to = row_in_memory(t, row + 8 * r);
#pragma unroll
      for (int i = 0; i < kD / 8; ++i) {
        const int column = 8 * i + 2 * int(lane % 4);
        const u32 x = result(i, r);
        if (column + 1 < p.head_dim)
          *reinterpret_cast<u32*>(to + column) = x;
        else if (column < p.head_dim)
          to[column] = u16(x);
      }
    }
  }
};

}  // namespace tegula::cuda
