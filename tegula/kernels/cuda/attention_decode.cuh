// A block's part of attention_decode.cu, which says what it does and how it is cut.
#pragma once

#include "tegula/kernels/cuda/attention_params.h"
#include "tegula/kernels/cuda/count.cuh"
#include "tegula/kernels/cuda/ptx/cp_async.cuh"
#include "tegula/kernels/cuda/ptx/mma.cuh"
#include "tegula/kernels/cuda/ptx/order.cuh"
#include "tegula/kernels/cuda/ptx/sync.cuh"
#include "tegula/kernels/cuda/ptx/types.cuh"

namespace tegula::cuda {

constexpr int kD = TEGULA_HEAD_DIM;
constexpr int kRows = TEGULA_ROWS;
constexpr int kWarps = TEGULA_WARPS;
constexpr bool kPaged = TEGULA_PAGED;
constexpr int kThreads = 32 * kWarps;
constexpr int kStep = 16;                // keys a warp takes at once
constexpr int kHeads = TEGULA_HEADS;     // of a block: warp w has head w % kHeads
constexpr int kParts = kWarps / kHeads;  // warps of a head
constexpr int kStride = kStep * kParts;
constexpr int kTiles = kRows / 8;
constexpr int kSlots = TEGULA_SLOTS;  // steps of a warp under way
constexpr int kRowBytes = 2 * kD;
constexpr int kStepBytes = kStep * kRowBytes;        // of K, and of V
constexpr int kChunks = kRowBytes / 16;              // of a row
constexpr int kRowsAtOnce = 32 / kChunks;            // that a warp copies with one instruction
constexpr int kRingBytes = kSlots * 2 * kStepBytes;  // of a warp

// Where 16-byte chunk `chunk` of a row lies in its step: eight rows' chunks fall on all banks.
__device__ inline u32 place(u32 row, u32 chunk) {
  return row * kRowBytes + ((chunk ^ (row & 7)) << 4);
}

// Which block of the grid (splits, n_heads_kv / kHeads * n_tiles, batch).
struct DecodeBlock {
  int split, heads, batch;  // heads: which of them
  int n_heads, n_batch;
};

// The places that a block has looked up, for its next calls of the same lengths and pages.
struct Kept {
  int keys, pages[kThreads];
};

// A split of one sequence and KV head: what a block works on, or the warps of one of its heads.
struct Item {
  DecodeBlock at;
  int batch, head_kv, first_head;  // the latter: of the block
  int first_row;                   // of the tile
  int keys;                        // of the sequence
  int split, first_split;          // the latter: among whose keys the first is that some query sees
  int begin, end;                  // keys of this split
  int first_seen;                  // keys before it are hidden from every query

  // kept: null, or where its length is.
  __device__ Item(const AttentionDecodeParams& p, const DecodeBlock& block, int warp,
                  const Kept* kept)
      : at(block) {
    split = at.split, first_head = at.heads * kHeads, batch = at.batch;
    first_row = 0;
    if (kHeads == 1 && p.n_tiles > 1) {
      first_head /= p.n_tiles;
      first_row = (at.heads - first_head * p.n_tiles) * kRows;
    }
    head_kv = first_head + warp % kHeads;
    if (kept != nullptr)
      keys = kept->keys;
    else
      keys = p.seqlens_k ? max(0, min(p.seqlens_k[batch], p.seqlen_k)) : p.seqlen_k;
    first_seen = first_split = 0;
    if (p.window_left >= 0) {
      first_seen = max(0, keys - p.seqlen_q - p.window_left);
      first_split = first_seen / p.keys_per_split;
    }
    begin = (first_split + split) * p.keys_per_split;
    end = min(keys, begin + p.keys_per_split);
  }
  // The first split is there even without keys.
  __device__ bool is_active() const { return split == 0 || begin < keys; }
  __device__ int n_active(const AttentionDecodeParams& p) const {
    return max(1, (keys + p.keys_per_split - 1) / p.keys_per_split - first_split);
  }
};

// Which query a row is; its head is head_kv * group + row % group.
__device__ inline int query_of(const AttentionDecodeParams& p, int row) {
  return int(u32(row) * p.group_inverse >> 16);
}
__device__ inline u16* row_of(const AttentionDecodeParams& p, const AttentionTensor& t,
                              const Item& it, int row) {
  const int query = query_of(p, row), head = it.head_kv * p.group + row - query * p.group;
  return t.data + it.batch * t.batch + query * t.row + head * t.head;
}

// A warp's way through its steps: step n is the 16 keys from first_key + n * kStride on.
struct Reader {
  const AttentionDecodeParams& p;
  const u16 *k, *v;  // of the KV head, and of the sequence unless paged
  const int* pages;
  u64 policy;
  int first_key, n_steps, first, last;  // keys outside [first, last] are never read
  // Pages of 16 keys or more hold whole steps (steps begin at multiples of 16): lane l looks up the
  // page of the l-th of 32 steps. Of smaller pages it looks up that of key l % 16 of a step.
  struct Place {
    long long k, v;  // of the step's or the key's first element
  };
  Place now{}, ahead{};

  int chunk_bytes;  // that this lane copies of a row: 16, or none behind head_dim

  // kept, if any: `look` says whether the first pages are taken from there, or left there.
  __device__ Reader(const AttentionDecodeParams& p, const Item& it, int warp, Kept* kept,
                    AttentionLookUp look)
      : p(p) {
    chunk_bytes = 8 * (threadIdx.x % kChunks) < p.head_dim ? 16 : 0;
    first_key = it.begin + warp / kHeads * kStep, first = it.first_seen, last = it.keys - 1;
    n_steps = max(0, (it.end - first_key + kStride - 1) / kStride);
    pages = p.pages + static_cast<long long>(it.batch) * p.pages_per_sequence;
    if (kPaged && n_steps > 0) {
      const int page = look == kTakeKept ? kept->pages[threadIdx.x] : page_of(0);
      if (look == kLookUpAndKeep) kept->pages[threadIdx.x] = page;
      now = place_in(page, 0);
    }
    k = p.k.data + it.head_kv * p.k.head, v = p.v.data + it.head_kv * p.v.head;
    if (!kPaged) k += it.batch * p.k.batch, v += it.batch * p.v.batch;
    policy = p.keeps_kv ? kEvictLast : kEvictNormal;
  }
  __device__ bool has_one_page() const { return p.page_log2 >= 4; }
  // This lane's key of the steps from `step` on; its place in the table, its page, and where that
  // is.
  __device__ int key_of(int step) const {
    const int lane = threadIdx.x % 32;
    return first_key + (has_one_page() ? (step + lane) * kStride : step * kStride + lane % kStep);
  }
  __device__ int entry_of(int step) const {
    const int key = max(first, min(key_of(step), last));
    return p.page_log2 >= 0 ? key >> p.page_log2 : key / p.page_size;
  }
  __device__ int page_of(int step) const {
    return max(0, min(__ldg(pages + entry_of(step)), p.last_page));
  }
  __device__ Place place_in(long long page, int step) const {
    const int within = has_one_page()
                           ? key_of(step) & (p.page_size - 1)
                           : max(first, min(key_of(step), last)) - entry_of(step) * p.page_size;
    return {page * p.k.batch + within * p.k.row, page * p.v.batch + within * p.v.row};
  }
  // Before K of step n is copied, and after V is: pages are looked up long before they are needed.
  __device__ void begin_step(int n) {
    if (kPaged && n > 0 && (!has_one_page() || n % 32 == 0)) now = ahead;
  }
  __device__ void end_step(int n) {
    const int next = n + (has_one_page() ? 32 : 1);
    if (kPaged && next < n_steps && (!has_one_page() || n % 32 == 0))
      ahead = place_in(page_of(next), next);
  }
  __device__ void copy_k(u32 to, int n) const { copy(k, p.k, now.k, to, n); }
  __device__ void copy_v(u32 to, int n) const { copy(v, p.v, now.v, to, n); }

 private:
  // Copies K or V of step n; `at` is the step's, or the key's, of pages.
  __device__ void copy(const u16* from, const AttentionTensor& t, long long at, u32 to,
                       int n) const {
    const int lane = threadIdx.x % 32, row = lane / kChunks, chunk = lane % kChunks;
    const int key = first_key + n * kStride;
    const bool is_scattered = kPaged && !has_one_page();
    from += 8 * chunk;
    if (is_scattered)
      from += at - 8 * chunk;
    else if constexpr (kPaged)
      from += __shfl_sync(0xffffffff, at, n % 32) + row * t.row;
    else
      from += (key + row) * t.row;
    if (!is_scattered && key >= first && key + kStep - 1 <= last) {
      // The same places; of dense keys the second way takes 1 % more of short reads.
      const u32 first_to = to + place(row, chunk);
#pragma unroll
      for (int r = 0; r < kStep; r += kRowsAtOnce, from += kRowsAtOnce * t.row)
        cp_async(!kPaged ? to + place(row + r, chunk) : (first_to ^ (r & 7) << 4) + r * kRowBytes,
                 from, chunk_bytes, policy);
      return;
    }
#pragma unroll 1
    for (int r = row; r < kStep; r += kRowsAtOnce) {
      const u16* row_from = from;
      if (is_scattered) {
        const auto bits = reinterpret_cast<u64>(from);
        row_from = reinterpret_cast<const u16*>(__shfl_sync(0xffffffff, bits, r)) + 8 * chunk;
      }
      cp_async(to + place(r, chunk), row_from,
               key + r >= first && key + r <= last ? chunk_bytes : 0, policy);
      from += is_scattered ? 0 : kRowsAtOnce * t.row;
    }
  }
};

// Until the oldest copy, of K or V, of `n_slots` steps has landed.
__device__ inline void wait_for_oldest(int n_slots) {
  if (n_slots == 1)
    cp_async_wait<1>();
  else
    cp_async_wait<2 * kSlots - 1>();
}

// The maximum or sum over the lanes that hold the other keys of this lane's query rows.
template <class F>
__device__ inline float over_keys(float x, F f) {
#pragma unroll
  for (int m = 4; m < 32; m *= 2) x = f(x, __shfl_xor_sync(0xffffffff, x, m));
  return x;
}
__device__ inline float largest(float a, float b) { return fmaxf(a, b); }
__device__ inline float sum(float a, float b) { return a + b; }

__device__ inline float safe(float top) { return top == kNegativeInfinity ? 0.f : top; }

__device__ inline float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// A part of the result, over some keys, of query rows 8i + 2t + c: maximum, sum of weights, and of
// Oᵀ column 16m + 8e + g in o[2e + c]. An accumulator's four floats stay together everywhere.
struct Part {
  float top[2], weight[2];
  float o[4];

  __device__ void clear() {
    top[0] = top[1] = kNegativeInfinity, weight[0] = weight[1] = 0;
    o[0] = o[1] = o[2] = o[3] = 0;
  }
  // The parts [0, n), kAtOnce under way at a time; get(s, sums, o) reads one.
  template <int kAtOnce, class Get>
  __device__ void merge(int n, Get get) {
    for (int first = 0; first < n; first += kAtOnce) {
      float4 sums[kAtOnce], x[kAtOnce];
#pragma unroll
      for (int s = 0; s < kAtOnce; ++s) {
        sums[s] = make_float4(kNegativeInfinity, 0, kNegativeInfinity, 0);
        x[s] = make_float4(0, 0, 0, 0);
        if (first + s < n) get(first + s, sums[s], x[s]);
      }
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float next = top[c];
#pragma unroll
        for (int s = 0; s < kAtOnce; ++s) next = fmaxf(next, c == 0 ? sums[s].x : sums[s].z);
        const float mine = exp2_approx(top[c] - safe(next));
        top[c] = next, weight[c] *= mine, o[c] *= mine, o[2 + c] *= mine;
#pragma unroll
        for (int s = 0; s < kAtOnce; ++s) {
          const float its = exp2_approx((c == 0 ? sums[s].x : sums[s].z) - safe(next));
          weight[c] = __fmaf_rn(c == 0 ? sums[s].y : sums[s].w, its, weight[c]);
          o[c] = __fmaf_rn(c == 0 ? x[s].x : x[s].y, its, o[c]);
          o[2 + c] = __fmaf_rn(c == 0 ? x[s].z : x[s].w, its, o[2 + c]);
        }
      }
    }
  }
};

constexpr int kBlocks = kD / 16;           // of 16 columns
constexpr int kPieces = kTiles * kBlocks;  // accumulators [i][m] of a warp

// A warp's part, in place of its ring; its maxima are those of all warps of its head.
struct WarpPart {
  float4 o[kPieces][32];
  float4 sums[kTiles][4];
};
constexpr int kMergedAtOnce = kWarps > 8 ? 8 : 16;  // splits: as many as registers hold
constexpr int kPartBytes = (int(sizeof(WarpPart)) + 1023) / 1024 * 1024;
struct Shared {
  char ring[kWarps][kRingBytes < kPartBytes ? kPartBytes : kRingBytes];
  float tops[kWarps][kRows];
  bool is_last;

  __device__ WarpPart& part(int warp) { return *reinterpret_cast<WarpPart*>(ring[warp]); }
};

// Row 8i + 2t + c, column 16m + 8e + g of the result.
__device__ inline void write(const AttentionDecodeParams& p, const Item& it, int piece, int lane,
                             int c, int e, float top, float weight, float o) {
  const int i = piece / kBlocks, column = piece % kBlocks * 16 + 8 * e + lane / 4;
  const int row = it.first_row + 8 * i + 2 * (lane % 4) + c;
  if (row >= p.group * p.seqlen_q) return;
  const float share = weight == 0.f ? 0.f : reciprocal(weight);
  if (column < p.head_dim) row_of(p, p.o, it, row)[column] = round_to_element(o * share);
  if (column > 0) return;
  if (weight != 0.f) count_flops(3 + p.head_dim);
  if (p.lse == nullptr) return;
  const int query = query_of(p, row), head = it.head_kv * p.group + row - query * p.group;
  p.lse[(static_cast<long long>(it.batch) * p.n_heads_q + head) * p.seqlen_q + query] =
      weight == 0.f ? kNegativeInfinity : (top + __log2f(weight)) * 0.6931471805599453f;
}

// Where a thread's accumulator `at` of a block's result belongs.
struct Spot {
  int head, piece, lane, i, t;  // head: of the block's

  __device__ explicit Spot(int at)
      : head(at / (32 * kPieces)),
        piece(at / 32 % kPieces),
        lane(at % 32),
        i(piece / kBlocks),
        t(lane % 4) {}
};

// The warps' parts in order; then, by the last block of its heads to come here, their splits in
// order.
__device__ inline void combine(const AttentionDecodeParams& p, Item it, Shared& shared) {
  constexpr int kAll = kHeads * kPieces * 32;
  const int rows = p.group * p.seqlen_q - it.first_row, n_active = it.n_active(p);
  const long long block = static_cast<long long>(it.at.batch) * it.at.n_heads + it.at.heads;
  const long long n_blocks = it.at.n_heads * it.at.n_batch;
  // [block][split][at], then [block][split][head][i][t].
  float4* o = static_cast<float4*>(p.partial) + block * p.n_splits * kAll;
  float4* sums = static_cast<float4*>(p.partial) + n_blocks * p.n_splits * kAll +
                 block * p.n_splits * kHeads * kTiles * 4;
  // A thread adds one of an accumulator's four floats.
#pragma unroll 1
  for (int at = threadIdx.x; at < 4 * kAll; at += kThreads) {
    const Spot to(at / 4);
    const int c = at % 2, e = at / 2 % 2;
    if (8 * to.i + 2 * to.t >= rows) continue;
    float2 sum = make_float2(kNegativeInfinity, 0);  // maximum, the same of all, and weight
    float x = 0;
#pragma unroll
    for (int j = 0; j < kParts; ++j) {
      const WarpPart& of = shared.part(j * kHeads + to.head);
      const float2 its = reinterpret_cast<const float2*>(&of.sums[to.i][to.t])[c];
      sum.x = its.x, sum.y += its.y;
      x += reinterpret_cast<const float*>(&of.o[to.piece][to.lane])[at % 4];
    }
    if (n_active == 1) {
      it.head_kv = it.first_head + to.head;
      write(p, it, to.piece, to.lane, c, e, sum.x, sum.y, x);
      continue;
    }
    __stcg(reinterpret_cast<float*>(o + it.split * kAll) + at, x);
    if (to.piece % kBlocks == 0 && to.lane < 4 && e == 0)
      __stcg(reinterpret_cast<float2*>(sums + ((it.split * kHeads + to.head) * kTiles + to.i) * 4 +
                                       to.t) +
                 c,
             sum);
  }
  if (n_active == 1) return;

  __syncthreads();
  if (threadIdx.x == 0)
    shared.is_last = add_and_see(&p.counters[block]) == static_cast<u32>(n_active - 1);
  __syncthreads();
  if (!shared.is_last) return;
  if (threadIdx.x == 0) p.counters[block] = 0;
#pragma unroll 1
  for (int at = threadIdx.x; at < kAll; at += kThreads) {
    const Spot to(at);
    if (8 * to.i + 2 * to.t >= rows) continue;
    Part part;
    part.clear();
    part.merge<kMergedAtOnce>(n_active, [&](int s, float4& of, float4& x) {
      of = __ldcg(sums + ((s * kHeads + to.head) * kTiles + to.i) * 4 + to.t);
      x = __ldcg(o + s * kAll + at);
    });
    it.head_kv = it.first_head + to.head;
#pragma unroll
    for (int k = 0; k < 4; ++k)
      write(p, it, to.piece, to.lane, k % 2, k / 2, part.top[k % 2], part.weight[k % 2], part.o[k]);
  }
}

// smem: aligned to 1024. kIsAlone: the kernel does nothing else. kept: none, where it looks up.
template <bool kIsAlone>
__device__ __forceinline__ void attend(const AttentionDecodeParams& p, const DecodeBlock& block,
                                       char* smem, Kept* kept = nullptr,
                                       AttentionLookUp look = kLookUp) {
  Shared& shared = *reinterpret_cast<Shared*>(smem);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  // The kernel before may write the newest keys; and lengths and pages, unless said otherwise.
  if (kIsAlone && !p.is_settled) wait_for_grid_before();
  const Item it(p, block, warp, look == kTakeKept ? kept : nullptr);
  if (look == kLookUpAndKeep && threadIdx.x == 0) kept->keys = it.keys;
  if (!it.is_active()) return;

  Reader reader(p, it, warp, kept, look);
  if (kIsAlone && p.is_settled) wait_for_grid_before();
  u32 q[kTiles][kD / 8];  // Qᵀ is the B of Sᵀ: lane (g, t) holds row g of each tile
  float top[kTiles][2], weight[kTiles][2];  // of rows 2t + c; `weight` over this lane's keys
  float o[kTiles][kBlocks][4] = {};
#pragma unroll
  for (int i = 0; i < kTiles; ++i)
    top[i][0] = top[i][1] = kNegativeInfinity, weight[i][0] = weight[i][1] = 0;
  const int shift = it.keys - p.seqlen_q;
  const int seen_by_all = p.is_causal ? min(it.end, shift + 1) : it.end;
  const int hidden_before = p.window_left < 0 ? 0 : max(0, it.keys - 1 - p.window_left);

  // This lane's address for ldmatrix: a row of K by halves of 8 columns, of V by blocks of 8 keys.
  const u32 k_place = place(lane % 16, lane / 16);
  const u32 v_place = place(lane % 8 + lane / 16 * 8, lane / 8 % 2);
  const u32 ring = smem_address(shared.ring[warp]);
  const int n_slots = p.n_slots;
  int slot = 0;

  // Step n is copied into the place of step n - n_slots as soon as that has been used.
#pragma unroll 1
  for (int n = 0; n < reader.n_steps + n_slots; ++n) {
    const u32 k_at = ring + slot * 2 * kStepBytes, v_at = k_at + kStepBytes;
    const bool is_due = n >= n_slots, is_more = n < reader.n_steps;
    const int key = reader.first_key + (n - n_slots) * kStride;
    float s[kTiles][4] = {};
    if (is_due) {
      wait_for_oldest(n_slots);
      __syncwarp();
#pragma unroll
      for (int c = 0; c < kD / 16; ++c) {
        u32 a[4];
        ldmatrix((k_at + k_place) ^ (c << 5), a);
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          // The tensor cores cut their sums, so only short ones are theirs.
          float part[4] = {};
          mma_m16n8k16(part, a[0], a[1], a[2], a[3], q[i][2 * c], q[i][2 * c + 1]);
#pragma unroll
          for (int e = 0; e < 4; ++e) s[i][e] += part[e];
        }
      }
      __syncwarp();
    }
    if (is_more) {
      reader.begin_step(n);
      reader.copy_k(k_at, n);
    }
    cp_async_commit();
    if (is_due) {
      u32 weights[kTiles][2];  // B of Oᵀ: keys 2t.. and 2t + 8.., query row g
      const bool is_whole = key >= hidden_before && key + kStep <= seen_by_all;
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        float grow[2];
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float &a = s[i][c], &b = s[i][2 + c];  // keys g, g + 8
          a *= p.scale_log2, b *= p.scale_log2;
          if constexpr (kCounts) {
            const int row = it.first_row + 8 * i + 2 * t + c, at = shift + query_of(p, row);
            const int low = p.window_left < 0 ? 0 : at - p.window_left;
            const int high = p.is_causal ? min(it.end, at + 1) : it.end;
            const int n_seen =
                (key + g >= low && key + g < high) + (key + g + 8 >= low && key + g + 8 < high);
            if (row < p.group * p.seqlen_q) count_flops(n_seen * (1 + 4 + 4 * p.head_dim));
          }
          if (!is_whole) {
            const int query = query_of(p, it.first_row + 8 * i + 2 * t + c);
            const int low = p.window_left < 0 ? 0 : shift + query - p.window_left;
            const int high = p.is_causal ? min(it.end, shift + query + 1) : it.end;
            if (key + g < low || key + g >= high) a = kNegativeInfinity;
            if (key + g + 8 < low || key + g + 8 >= high) b = kNegativeInfinity;
          }
          const float next_top = fmaxf(top[i][c], over_keys(fmaxf(a, b), largest));
          grow[c] = exp2_approx(top[i][c] - safe(next_top));
          top[i][c] = next_top;
          a = exp2_approx(a - safe(next_top)), b = exp2_approx(b - safe(next_top));
          weight[i][c] = __fmaf_rn(weight[i][c], grow[c], a + b);
        }
#pragma unroll
        for (int m = 0; m < kBlocks; ++m)
#pragma unroll
          for (int e = 0; e < 4; ++e) o[i][m][e] *= grow[e % 2];
        weights[i][0] = transpose_8x8(pack_element(s[i][0], s[i][1]));
        weights[i][1] = transpose_8x8(pack_element(s[i][2], s[i][3]));
      }
      wait_for_oldest(n_slots);
      __syncwarp();
#pragma unroll
      for (int m = 0; m < kBlocks; ++m) {
        u32 a[4];
        ldmatrix_transposed((v_at + v_place) ^ (m << 5), a);
#pragma unroll
        for (int i = 0; i < kTiles; ++i)
          mma_m16n8k16(o[i][m], a[0], a[1], a[2], a[3], weights[i][0], weights[i][1]);
      }
      __syncwarp();
    }
    if (is_more) {
      reader.copy_v(v_at, n);
      reader.end_step(n);
    }
    cp_async_commit();
    if (n == 0) {  // behind the first copies, before the others
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        const int row = it.first_row + 8 * i + g;
        const u16* from = row_of(p, p.q, it, row) + 2 * t;
        const int columns = row < p.group * p.seqlen_q ? p.head_dim : 0;
#pragma unroll
        for (int c = 0; c < kD / 8; ++c)
          q[i][c] = 8 * c < columns ? *reinterpret_cast<const u32*>(from + 8 * c) : 0;
      }
    }
    if (++slot == n_slots) slot = 0;
  }

  // The warps of a head weigh what they have by their common maximum, so it only adds up then.
  cp_async_wait<0>();
  const auto tops_of = [&](int of, int i) {
    return reinterpret_cast<float2*>(&shared.tops[of][8 * i + 2 * t]);
  };
#pragma unroll
  for (int i = 0; i < kTiles; ++i)
    if (g == 0) *tops_of(warp, i) = make_float2(top[i][0], top[i][1]);
#pragma unroll
  for (int i = 0; i < kTiles; ++i)
#pragma unroll
    for (int c = 0; c < 2; ++c) weight[i][c] = over_keys(weight[i][c], sum);
  __syncthreads();
  if (kIsAlone)
    start_grid_after();  // the next grid's blocks find room by now, and are set up meanwhile
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    float share[2], sums[2];
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float most = kNegativeInfinity;
#pragma unroll
      for (int j = 0; j < kParts; ++j) {
        const float2 its = *tops_of(j * kHeads + warp % kHeads, i);
        most = fmaxf(most, c == 0 ? its.x : its.y);
      }
      share[c] = exp2_approx(top[i][c] - safe(most)), top[i][c] = most;
      sums[c] = weight[i][c] * share[c];
    }
    if (g == 0) shared.part(warp).sums[i][t] = make_float4(top[i][0], sums[0], top[i][1], sums[1]);
#pragma unroll
    for (int m = 0; m < kBlocks; ++m) {
      const float(&x)[4] = o[i][m];
      shared.part(warp).o[i * kBlocks + m][lane] =
          make_float4(x[0] * share[0], x[1] * share[1], x[2] * share[0], x[3] * share[1]);
    }
  }
  __syncthreads();
  combine(p, it, shared);
}

}  // namespace tegula::cuda
