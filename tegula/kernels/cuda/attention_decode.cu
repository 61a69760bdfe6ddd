// O = softmax(scale · Q Kᵀ + mask) V for few queries and many keys, bounded by reading K and V
// once.
//
// The query heads of one KV head, times the queries, are the rows of one small tile (at most
// kRows), so K and V pass once for all of them. Keys are cut into splits; a block takes one, its
// warps take steps of 16 keys in turn. Scores are computed transposed, Sᵀ = K Qᵀ and Oᵀ = Vᵀ Pᵀ, so
// that the 16 rows of mma.sync are keys or columns of V and nothing is padded but the query rows.
// K and V go from global memory straight into the registers of the fragments:
//   K (A of Sᵀ): lane (g, t) reads 16 bytes of keys g and g + 8; the order of d inside a product is
//     free, as long as Q has the same.
//   V (A of Oᵀ): lane (g, t) reads 16 bytes, columns 8g.., of keys 2t, 2t + 1, 2t + 8, 2t + 9; the
//     pairs of keys that the fragment wants are made by byte permutes.
// A warp has its next step's K and V under way while it works on this one. The last block of a head
// combines its splits by their log-sum-exp, in order, so the bits depend on where splits are cut
// alone, and that is at multiples of keys_per_split. Flash-Decoding (Dao et al. 2023).
//
// Variant, by -D: TEGULA_HEAD_DIM 64 | 128, TEGULA_ROWS 8 | 16, TEGULA_WARPS, TEGULA_BLOCKS a
// multiprocessor, TEGULA_PAGED 0 | 1.
#include "tegula/kernels/cuda/attention_params.h"
#include "tegula/kernels/cuda/ptx/mma.cuh"
#include "tegula/kernels/cuda/ptx/sync.cuh"
#include "tegula/kernels/cuda/ptx/types.cuh"

namespace tegula::cuda {

constexpr int kD = TEGULA_HEAD_DIM;
constexpr int kRows = TEGULA_ROWS;
constexpr int kWarps = TEGULA_WARPS;
constexpr bool kPaged = TEGULA_PAGED;
constexpr int kThreads = 32 * kWarps;
constexpr int kStep = 16;  // keys a warp takes at once
constexpr int kStride = kStep * kWarps;
constexpr int kChunks = kD / 32;  // 16-byte pieces of a key's row in a lane
constexpr int kHalves = kD / 64;  // the same of a value's row
constexpr int kTiles = kRows / 8;

struct alignas(16) Piece {
  u32 word[4];
};

// Read once, so not kept in L1. Volatile: it stays ahead of the products it was put ahead of.
__device__ inline Piece load_piece(const u16* from, u64 policy) {
  Piece p;
  asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(p.word[0]), "=r"(p.word[1]), "=r"(p.word[2]), "=r"(p.word[3])
               : "l"(from), "l"(policy));
  return p;
}

// What a warp reads of one step.
struct Step {
  Piece k[2][kChunks];  // keys g, g + 8
  Piece v[4][kHalves];  // keys 2t, 2t + 1, 2t + 8, 2t + 9
};

__device__ inline int v_key(int i) { return 2 * (threadIdx.x % 4) + (i & 1) + 8 * (i / 2); }
__device__ inline int k_key(int i) { return threadIdx.x % 32 / 4 + 8 * i; }

// A split of one sequence and KV head: what a block works on.
struct Item {
  int batch, head_kv;
  int keys;             // of the sequence
  int split, n_active;  // among the splits that some query sees
  int begin, end;       // keys of this split
  int first_seen;       // keys before it are hidden from every query

  __device__ explicit Item(const AttentionDecodeParams& p) {
    split = blockIdx.x, head_kv = blockIdx.y, batch = blockIdx.z;
    keys = p.seqlens_k ? p.seqlens_k[batch] : p.seqlen_k;
    first_seen = p.window_left < 0 ? 0 : max(0, keys - p.seqlen_q - p.window_left);
    const int first_split = first_seen / p.keys_per_split;
    n_active = max(1, (keys + p.keys_per_split - 1) / p.keys_per_split - first_split);
    begin = (first_split + split) * p.keys_per_split;
    end = min(keys, begin + p.keys_per_split);
  }
};

// Where a warp reads next: its steps of 16 keys.
struct Cursor {
  const u16 *k, *v;  // of the KV head, and of the sequence unless paged
  const int* pages;
  u64 policy;
  int key, first, last;  // keys outside [first, last] are never read
  int k_page[2], v_page[4];

  __device__ Cursor(const AttentionDecodeParams& p, const Item& it, int warp) {
    k = p.k.data + it.head_kv * p.k.head, v = p.v.data + it.head_kv * p.v.head;
    policy = p.keeps_kv ? kEvictLast : kEvictNormal;
    key = it.begin + warp * kStep, first = it.first_seen, last = it.keys - 1;
    if constexpr (kPaged)
      pages = p.pages + static_cast<long long>(it.batch) * p.pages_per_sequence;
    else
      k += it.batch * p.k.batch, v += it.batch * p.v.batch;
  }
  // Steps begin at multiples of 16: of pages as large, one holds a step.
  __device__ static bool is_one_page(const AttentionDecodeParams& p) { return p.page_log2 >= 4; }
  // The pages of the keys at `key`: asked for a step before the keys.
  __device__ void load_pages(const AttentionDecodeParams& p) {
    if constexpr (kPaged) {
      k_page[0] = page(p, key + k_key(0));
      if (is_one_page(p)) return;
      k_page[1] = page(p, key + k_key(1));
      for (int i = 0; i < 4; ++i) v_page[i] = page(p, key + v_key(i));
    }
  }
  __device__ int clamped(int at) const { return max(first, min(at, last)); }
  __device__ int page(const AttentionDecodeParams& p, int at) const {
    const int c = clamped(at);
    return __ldg(pages + (p.page_log2 >= 0 ? c >> p.page_log2 : c / p.page_size));
  }
  // Where key 0 would lie if all keys followed those of the step's page.
  __device__ const u16* base(const u16* from, const AttentionTensor& t,
                             const AttentionDecodeParams& p) const {
    if (!kPaged || !is_one_page(p)) return from;
    return from + k_page[0] * t.batch - (clamped(key) & -p.page_size) * t.row;
  }
  __device__ const u16* row(const u16* base, const AttentionTensor& t,
                            const AttentionDecodeParams& p, int at, int page) const {
    const int c = clamped(at);
    if (!kPaged || is_one_page(p)) return base + c * t.row;
    const int inside = p.page_log2 >= 0 ? c & (p.page_size - 1) : c % p.page_size;
    return base + page * t.batch + inside * t.row;
  }
};

__device__ inline void load_k(Step& s, const Cursor& at, const AttentionDecodeParams& p) {
  const u16* k = at.base(at.k, p.k, p);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const u16* row = at.row(k, p.k, p, at.key + k_key(i), at.k_page[i]) + threadIdx.x % 4 * 8;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) s.k[i][c] = load_piece(row + 32 * c, at.policy);
  }
}

__device__ inline void load_v(Step& s, const Cursor& at, const AttentionDecodeParams& p) {
  const u16* v = at.base(at.v, p.v, p);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const u16* row = at.row(v, p.v, p, at.key + v_key(i), at.v_page[i]) + threadIdx.x % 32 / 4 * 8;
#pragma unroll
    for (int h = 0; h < kHalves; ++h) s.v[i][h] = load_piece(row + 64 * h, at.policy);
  }
}

// Two values of V, of neighbouring keys: column 2j or 2j + 1 of a piece.
__device__ inline u32 pair(const Piece& a, const Piece& b, int j, bool is_odd) {
  return __byte_perm(a.word[j], b.word[j], is_odd ? 0x7632 : 0x5410);
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

// A part of the result, over some keys, of query rows 8i + 2t + c: maximum, sum of weights, and of
// Oᵀ column 64h + 8g + 2j + e in o[2e + c]. An accumulator's four floats stay together everywhere.
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
  __device__ float4 sums() const { return make_float4(top[0], weight[0], top[1], weight[1]); }
};

constexpr int kPieces = kTiles * kHalves * 4;  // accumulators [i][h][j] of a warp

// The parts of the warps.
struct Shared {
  float4 o[kWarps][kPieces][32];
  float4 sums[kWarps][kTiles][4];
  bool is_last;
};

// Rows 8i + 2t + c, columns 64h + 8g + 2j + e of the result.
__device__ inline void write(const AttentionDecodeParams& p, const Item& it, int piece, int lane,
                             const Part& x) {
  const int i = piece / (4 * kHalves), h = piece / 4 % kHalves, j = piece % 4;
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    const int row = 8 * i + 2 * t + c;
    if (row >= p.group * p.seqlen_q) continue;
    const float share = x.weight[c] == 0.f ? 0.f : 1.f / x.weight[c];
    const int query = row / p.group, head = it.head_kv * p.group + row % p.group;
    u16* to = p.o.data + it.batch * p.o.batch + query * p.o.row + head * p.o.head;
    *reinterpret_cast<u32*>(to + 64 * h + 8 * g + 2 * j) =
        pack_bf16(x.o[c] * share, x.o[2 + c] * share);
    if (h == 0 && j == 0 && g == 0 && p.lse)
      p.lse[(static_cast<long long>(it.batch) * p.n_heads_q + head) * p.seqlen_q + query] =
          x.weight[c] == 0.f ? kNegativeInfinity
                             : (x.top[c] + __log2f(x.weight[c])) * 0.6931471805599453f;
  }
}

// The warps' parts in order; then, by the last block of a head to come here, its splits in order.
__device__ inline void combine(const AttentionDecodeParams& p, const Item& it, Shared& shared) {
  const int rows = p.group * p.seqlen_q;
  const long long head = static_cast<long long>(it.batch) * p.n_heads_kv + it.head_kv;
  const long long n_heads = gridDim.y * gridDim.z;
  // [head][split][piece][lane], then [head][split][i][t].
  float4* o = static_cast<float4*>(p.partial) + head * p.n_splits * kPieces * 32;
  float4* sums = static_cast<float4*>(p.partial) + n_heads * p.n_splits * kPieces * 32 +
                 head * p.n_splits * kTiles * 4;
  for (int at = threadIdx.x; at < kPieces * 32; at += kThreads) {
    const int piece = at / 32, lane = at % 32, i = piece / (4 * kHalves), t = lane % 4;
    if (8 * i + 2 * t >= rows) continue;
    Part part;
    part.clear();
    part.merge<kWarps>(kWarps, [&](int w, float4& sums, float4& x) {
      sums = shared.sums[w][i][t], x = shared.o[w][piece][lane];
    });
    if (it.n_active == 1) {
      write(p, it, piece, lane, part);
      continue;
    }
    __stcg(o + it.split * kPieces * 32 + at,
           make_float4(part.o[0], part.o[1], part.o[2], part.o[3]));
    if (piece % (4 * kHalves) == 0 && lane < 4)
      __stcg(sums + (it.split * kTiles + i) * 4 + t, part.sums());
  }
  if (it.n_active == 1) return;

  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0)
    shared.is_last = atomicAdd(&p.counters[head], 1u) == static_cast<u32>(it.n_active - 1);
  __syncthreads();
  if (!shared.is_last) return;
  __threadfence();
  if (threadIdx.x == 0) p.counters[head] = 0;
  for (int at = threadIdx.x; at < kPieces * 32; at += kThreads) {
    const int piece = at / 32, lane = at % 32, i = piece / (4 * kHalves), t = lane % 4;
    if (8 * i + 2 * t >= rows) continue;
    Part part;
    part.clear();
    part.merge<16>(it.n_active, [&](int s, float4& of, float4& x) {
      of = __ldcg(sums + (s * kTiles + i) * 4 + t), x = __ldcg(o + s * kPieces * 32 + at);
    });
    write(p, it, piece, lane, part);
  }
}

}  // namespace tegula::cuda

using namespace tegula::cuda;

// Grid (splits, n_heads_kv, batch).
extern "C" __global__ void __launch_bounds__(kThreads, TEGULA_BLOCKS)
    attention_decode(const __grid_constant__ AttentionDecodeParams p) {
  extern __shared__ float4 smem[];
  Shared& shared = *reinterpret_cast<Shared*>(smem);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int rows = p.group * p.seqlen_q;
  const Item it(p);
  if (it.split >= it.n_active) return;

  Cursor next(p, it, warp);
  Step step;
  if (next.key < it.end) {
    next.load_pages(p);
    load_k(step, next, p);
    load_v(step, next, p);
    next.key += kStride;
    next.load_pages(p);
  }
  // Qᵀ is the B of Sᵀ: lane (g, t) holds row g of each tile.
  Piece q[kTiles][kChunks];
#pragma unroll
  for (int i = 0; i < kTiles; ++i)
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int row = 8 * i + g;
      q[i][c] = Piece{};
      if (row < rows)
        q[i][c] = *reinterpret_cast<const Piece*>(
            p.q.data + it.batch * p.q.batch + row / p.group * p.q.row +
            (it.head_kv * p.group + row % p.group) * p.q.head + 32 * c + 8 * t);
    }
  float top[kTiles][2], weight[kTiles][2];  // of rows 2t + c; `weight` over this lane's keys
  float o[kTiles][kHalves][4][4] = {};
#pragma unroll
  for (int i = 0; i < kTiles; ++i)
    top[i][0] = top[i][1] = kNegativeInfinity, weight[i][0] = weight[i][1] = 0;
  const int shift = it.keys - p.seqlen_q;
  const int seen_by_all = p.is_causal ? min(it.end, shift + 1) : it.end;
  const int hidden_before = p.window_left < 0 ? 0 : max(0, it.keys - 1 - p.window_left);

  for (int key = it.begin + warp * kStep; key < it.end; key += kStride) {
    float s[kTiles][4] = {};
#pragma unroll
    for (int i = 0; i < kTiles; ++i)
#pragma unroll
      for (int c = 0; c < kChunks; ++c)
#pragma unroll
        for (int w = 0; w < 4; w += 2)
          mma_m16n8k16(s[i], step.k[0][c].word[w], step.k[1][c].word[w], step.k[0][c].word[w + 1],
                       step.k[1][c].word[w + 1], q[i][c].word[w], q[i][c].word[w + 1]);
    const bool is_more = next.key < it.end;
    if (is_more) load_k(step, next, p);
    u32 weights[kTiles][2];  // B of Oᵀ: keys 2t.. and 2t + 8.., query row g
    const bool is_whole = key >= hidden_before && key + kStep <= seen_by_all;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      float grow[2];
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float &a = s[i][c], &b = s[i][2 + c];  // keys g, g + 8
        a *= p.scale_log2, b *= p.scale_log2;
        if (!is_whole) {
          const int query = (8 * i + 2 * t + c) / p.group;
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
      for (int h = 0; h < kHalves; ++h)
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) o[i][h][j][e] *= grow[e % 2];
      weights[i][0] = transpose_8x8(pack_bf16(s[i][0], s[i][1]));
      weights[i][1] = transpose_8x8(pack_bf16(s[i][2], s[i][3]));
    }
#pragma unroll
    for (int h = 0; h < kHalves; ++h)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const u32 a0 = pair(step.v[0][h], step.v[1][h], j, false);
        const u32 a1 = pair(step.v[0][h], step.v[1][h], j, true);
        const u32 a2 = pair(step.v[2][h], step.v[3][h], j, false);
        const u32 a3 = pair(step.v[2][h], step.v[3][h], j, true);
#pragma unroll
        for (int i = 0; i < kTiles; ++i)
          mma_m16n8k16(o[i][h][j], a0, a1, a2, a3, weights[i][0], weights[i][1]);
      }
    if (is_more) {
      load_v(step, next, p);
      next.key += kStride;
      next.load_pages(p);
    }
  }

#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    const float w0 = over_keys(weight[i][0], sum), w1 = over_keys(weight[i][1], sum);
    if (g == 0) shared.sums[warp][i][t] = make_float4(top[i][0], w0, top[i][1], w1);
#pragma unroll
    for (int h = 0; h < kHalves; ++h)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float(&x)[4] = o[i][h][j];
        shared.o[warp][(i * kHalves + h) * 4 + j][lane] = make_float4(x[0], x[1], x[2], x[3]);
      }
  }
  __syncthreads();
  combine(p, it, shared);
}
