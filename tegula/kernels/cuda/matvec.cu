// Few rows times a matrix: what decoding is made of. Bound by reading b once, 16 bytes a load. Rows
// of b are not asked into the L2 while the grid before runs: with that, the products of Llama-2-7B
// took a fifth longer on an H100 (2.03 in place of 2.50 TB/s). Loads of b stay out of the L1, which
// saves 4 % there. They may, since b is constant while a grid runs: c is apart from it, so are the
// results of calls joined to this one, and the next grid waits for this one before it writes.
//
//   c[m, n] = a[m, k] b[k, n], f32 sums rounded once
//
// b as [n, k]: a warp has kRows columns of c; its lanes walk k side by side, and their sums are
// joined by a tree. b as [k, n]: a block has kColumns columns; group g of its threads takes k = g,
// g + kGroups, …, and the groups are joined by a tree. Neither order depends on m or on how many
// rows and columns go together: a row has the bits that it has alone. With shards every shard of k
// is such a sum, and a tree of neighbours joins them: the bits of the shards' products, added.
//
// Variant, by -D: TEGULA_M rows of a at a time, up to 16; TEGULA_SHARDS 1 | 2 | 4 | 8;
// TEGULA_B_MN_MAJOR 0, or 1 with TEGULA_COLUMNS 16 | 32 | 64 and up to 10 rows; TEGULA_IN16,
// TEGULA_OUT16 0: f32, 1: bf16, or f16 with TEGULA_F16. TEGULA_AFTER: behind a tile program.
#include "tegula/kernels/cuda/count.cuh"
#include "tegula/kernels/cuda/joined.cuh"
#include "tegula/kernels/cuda/matvec_params.h"
#include "tegula/kernels/cuda/ptx/sync.cuh"
#include "tegula/kernels/cuda/ptx/types.cuh"

using namespace tegula::cuda;

#if TEGULA_IN16
using In = u16;
#else
using In = float;
#endif
constexpr int kVector = 16 / sizeof(In);  // elements of a load
constexpr int kM = TEGULA_M, kShards = TEGULA_SHARDS;

// of[0] + of[1], of[2] + of[3], …, and so on up.
__device__ inline float sum_of_neighbours(float (&of)[kShards]) {
#pragma unroll
  for (int step = 1; step < kShards; step *= 2)
#pragma unroll
    for (int s = 0; s < kShards; s += 2 * step) of[s] += of[s + step];
  return of[0];
}

struct Values {
  float at[kVector];
  __device__ explicit Values(const uint4& words) {
    const u32 w[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#if TEGULA_IN16
      at[2 * i] = element_to_float(static_cast<u16>(w[i]));
      at[2 * i + 1] = element_to_float(static_cast<u16>(w[i] >> 16));
#else
      at[i] = __uint_as_float(w[i]);
#endif
    }
  }
};

__device__ inline void store(const MatvecParams& p, int m, int n, float x) {
  count_flops(kShards - 1);
#if TEGULA_OUT16
  static_cast<u16*>(p.c)[m * p.ldc + n] = static_cast<u16>(pack_element(x, 0.f));
#else
  static_cast<float*>(p.c)[m * p.ldc + n] = x;
#endif
}

__device__ inline const In* row_of_a(const MatvecParams& p, const In* a, int m) {
  // Rows past the last are the last, and not written.
  return a + min(m, p.m - 1) * p.lda;
}

// a may have to be made first, by begin(), which gives where it is: the first loads of b are on
// their way meanwhile.
#ifdef TEGULA_AFTER
constexpr bool kIsAfter = true;
#else
constexpr bool kIsAfter = false;
#endif

#if TEGULA_B_MN_MAJOR
// A thread has 4 columns of its group's k: narrow enough that few columns are many warps.
constexpr int kColumns = TEGULA_COLUMNS, kOwn = 4, kAcross = kColumns / kOwn;
constexpr int kGroups = 4 * kVector, kThreads = kGroups * kAcross;
// A group has k / kGroups loads one after another: so many of them are on their way at once, of a
// round. Narrow blocks are alone on their multiprocessor and need more.
constexpr int kAhead = kShards > 1 ? 4 : kColumns == 64 ? 8 : kColumns == 32 || kM > 8 ? 16 : 24;
constexpr int kRound = kAhead * kGroups;
// Rows of a lie as f32 in fours, and one or two are left over, beside each other at every k.
constexpr int kFours = (kM + 1) / 4, kLeft = kM % 4 == 3 ? 0 : kM % 4;
constexpr int kPerK = 4 * kFours + kLeft, kMostFloats = kIsAfter ? kFloatsAfter : 10240;
constexpr int kChunk = kRound * (kMostFloats / (kRound * kPerK));  // of k, in shared memory
// Rows that are joined at once: there is a thread for each sum, and room for what it joins.
constexpr int kMostAtOnce = kColumns == 64 || kGroups == 16 ? 4 : 8;
constexpr int kJoins = (kM + kMostAtOnce - 1) / kMostAtOnce, kAtOnce = (kM + kJoins - 1) / kJoins;
constexpr int kSums = kAtOnce * kGroups * kColumns;

struct Own {
  u32 words[kOwn * sizeof(In) / 4];
  __device__ __forceinline__ void load(const In* from) {
#if TEGULA_IN16
    const uint2 x = load_streamed_8(from);
    words[0] = x.x, words[1] = x.y;
#else
    const uint4 x = load_streamed(from);
    words[0] = x.x, words[1] = x.y, words[2] = x.z, words[3] = x.w;
#endif
  }
  __device__ __forceinline__ float operator[](int i) const {
#if TEGULA_IN16
    return element_to_float(static_cast<u16>(words[i / 2] >> 16 * (i % 2)));
#else
    return __uint_as_float(words[i]);
#endif
  }
};

// sums[g][n], g + 16 added to g, then g + 8, …: of one column n.
__device__ __forceinline__ float sum_of_groups(const float* sums, int n) {
  float of[kGroups / 2];
#pragma unroll
  for (int g = 0; g < kGroups / 2; ++g)
    of[g] = sums[g * kColumns + n] + sums[(g + kGroups / 2) * kColumns + n];
#pragma unroll
  for (int half = kGroups / 4; half > 0; half /= 2)
#pragma unroll
    for (int g = 0; g < kGroups / 4; ++g)
      if (g < half) of[g] += of[g + half];
  return of[0];
}

// a[first …][k0 … end), of a chunk: [four][k][4], then [k][left].
__device__ __forceinline__ void put_rows(const MatvecParams& p, const In* a, int first, int k0,
                                         int end, float* rows) {
  for (int i = 2 * threadIdx.x; i < min(kChunk, end - k0); i += 2 * kThreads) {
    float x[2][4 * kFours + 4] = {};
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      const In* from = row_of_a(p, a, first + m) + k0 + i;
#if TEGULA_IN16
      const u32 pair = *reinterpret_cast<const u32*>(from);
      x[0][m] = element_to_float(static_cast<u16>(pair));
      x[1][m] = element_to_float(static_cast<u16>(pair >> 16));
#else
      x[0][m] = from[0], x[1][m] = from[1];
#endif
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int f = 0; f < kFours; ++f)
        reinterpret_cast<float4*>(rows)[f * kChunk + i + j] = {x[j][4 * f], x[j][4 * f + 1],
                                                               x[j][4 * f + 2], x[j][4 * f + 3]};
#pragma unroll
      for (int l = 0; l < kLeft; ++l)
        rows[4 * kFours * kChunk + (i + j) * kLeft + l] = x[j][4 * kFours + l];
    }
  }
}

// Blocks: ⌈n / kColumns⌉ for each kM rows.
template <class Begin>
__device__ __forceinline__ void run(const MatvecParams& p, int block, Begin begin) {
  // Rows of a; then sums.
  __shared__ float4 memory[(kChunk * kPerK > kSums ? kChunk * kPerK : kSums) / 4];
  float* const rows = reinterpret_cast<float*>(memory);
  const int across = threadIdx.x % kAcross, group = threadIdx.x / kAcross;
  const int n_columns = (p.n + kColumns - 1) / kColumns;
  const int n0 = block % n_columns * kColumns, n = n0 + across * kOwn;
  const int first = block / n_columns * kM;
  const int shard_k = p.k / kShards;
  // Columns past the last are the last, and not written.
  const In* const b = static_cast<const In*>(p.b) + min(n, p.n - kOwn);
  const int m_joined = threadIdx.x / kColumns, n_joined = threadIdx.x % kColumns;
  const In* a = nullptr;
  float total[kJoins][kShards];
#pragma unroll
  for (int shard = 0; shard < kShards; ++shard) {
    float sum[kM][kOwn] = {};
    int n_k = 0;  // of the sums
    const int end = (shard + 1) * shard_k;
    int k0 = shard * shard_k, chunk = k0 - kChunk;
    Own y[kAhead] = {};
    const auto load = [&](int s, int k) {
      if (k < end) y[s].load(b + k * p.ldb);
    };
    const auto begin_round = [&] {
      if (k0 < chunk + kChunk) return;
      chunk = k0;
      __syncthreads();
      put_rows(p, a, first, k0, end, rows);
      __syncthreads();
    };
    const auto add = [&](int s, const Own& w) {
      const int at = k0 - chunk + s * kGroups + group;
      float x[kM];
#pragma unroll
      for (int f = 0; f < kFours; ++f) {
        const float4 four = memory[f * kChunk + at];
        const float of[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (4 * f + i < kM) x[4 * f + i] = of[i];
      }
#pragma unroll
      for (int l = 0; l < kLeft; ++l)
        x[4 * kFours + l] = rows[4 * kFours * kChunk + at * kLeft + l];
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const float of_b = w[i];
#pragma unroll
        for (int m = 0; m < kM; ++m) sum[m][i] = __fmaf_rn(x[m], of_b, sum[m][i]);
      }
      n_k += kCounts;
    };
#pragma unroll
    for (int s = 0; s < kAhead; ++s) load(s, k0 + s * kGroups + group);
    if (shard == 0) a = begin();
    // A round never ends early: if it could, the compiler would move what is on its way to other
    // registers, and so wait for it, at every step.
    for (; k0 + kRound <= end; k0 += kRound) {
      begin_round();
#pragma unroll
      for (int s = 0; s < kAhead; ++s) {
        add(s, y[s]);
        load(s, k0 + kRound + s * kGroups + group);
      }
    }
    if (k0 < end) {
      begin_round();
#pragma unroll
      for (int s = 0; s < kAhead; ++s)
        if (k0 + s * kGroups + group < end) add(s, y[s]);
    }
    if (n < p.n) count_flops(2ULL * n_k * min(kM, p.m - first) * min(kOwn, p.n - n));
#pragma unroll
    for (int join = 0; join < kJoins; ++join) {
      __syncthreads();
#pragma unroll
      for (int m = 0; m < kAtOnce; ++m)
        if (const int row = join * kAtOnce + m; row < kM)
          memory[((m * kGroups + group) * kColumns + across * kOwn) / 4] = {
              sum[row][0], sum[row][1], sum[row][2], sum[row][3]};
      __syncthreads();
      total[join][shard] = m_joined < kAtOnce && join * kAtOnce + m_joined < kM
                               ? sum_of_groups(rows + m_joined * kGroups * kColumns, n_joined)
                               : 0.f;
    }
  }
#pragma unroll
  for (int join = 0; join < kJoins; ++join) {
    const int row = join * kAtOnce + m_joined, m = first + row;
    if (m_joined < kAtOnce && row < kM && m < p.m && n0 + n_joined < p.n)
      store(p, m, n0 + n_joined, sum_of_neighbours(total[join]));
  }
}
#else
constexpr int kThreads = 128, kRows = kM > 8 ? 4 : 2;
constexpr int kAhead = kShards > 1 || kM > 8 ? 2 : kM > 2 ? 4 : 8;  // of a round

// Each of the warp's sums over its lanes l: l + 16 added to l, then l + 8, …. At every step half of
// the sums go on in each half of the lanes, and lane l is left with those of number at(i).
template <int kN>
struct OverLanes {
  static constexpr int kLeft = (kN + 31) / 32;
  float of[kLeft];
  static __device__ int at(int i) {
    return 32 * i + static_cast<int>(__brev(threadIdx.x % 32) >> 27);  // may be past the last
  }
  __device__ explicit OverLanes(float (&sums)[kN]) {
    int n = kN;
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      const bool is_upper = (threadIdx.x & step) != 0;
#pragma unroll
      for (int i = 0; i < (n + 1) / 2; ++i) {
        const float even = sums[2 * i], odd = sums[min(2 * i + 1, n - 1)];
        const float kept = is_upper ? odd : even;
        sums[i] = kept + __shfl_xor_sync(0xffffffffu, is_upper ? even : odd, step);
      }
      n = (n + 1) / 2;
    }
#pragma unroll
    for (int i = 0; i < kLeft; ++i) of[i] = sums[i];
  }
};

// Blocks: ⌈n / (kRows · warps)⌉ for each kM rows.
template <class Begin>
__device__ __forceinline__ void run(const MatvecParams& p, int block, Begin begin) {
  constexpr int kWarps = kThreads / 32, kColumns = kRows * kWarps;
  const int n_columns = (p.n + kColumns - 1) / kColumns;
  const int lane = threadIdx.x % 32, warp = block % n_columns * kWarps + threadIdx.x / 32;
  const int n = warp * kRows, first = block / n_columns * kM;
  if (!kIsAfter && n >= p.n) return;
  const In* b[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    b[r] = static_cast<const In*>(p.b) + static_cast<long long>(min(n + r, p.n - 1)) * p.ldb;
  constexpr int kStep = 32 * kVector, kRound = kAhead * kStep;
  const int shard_k = p.k / kShards, own = lane * kVector;
  using Sums = OverLanes<kM * kRows>;
  float total[Sums::kLeft][kShards];
  uint4 y[kAhead][kRows] = {};
  const auto load = [&](int s, int k, int end) {
    if (k >= end) return;
#pragma unroll
    for (int r = 0; r < kRows; ++r) y[s][r] = load_streamed(b[r] + k);
  };
#pragma unroll
  for (int s = 0; s < kAhead; ++s) load(s, s * kStep + own, shard_k);
  const In* const a = begin();
  if (kIsAfter && n >= p.n) return;
#pragma unroll
  for (int shard = 0; shard < kShards; ++shard) {
    float sum[kM * kRows] = {};
    int n_k = 0;  // of the sums
    int k0 = shard * shard_k;
    const int end = k0 + shard_k;
    const auto add = [&](int s) {
      n_k += kCounts * kVector;
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        const Values x(
            *reinterpret_cast<const uint4*>(row_of_a(p, a, first + m) + k0 + s * kStep + own));
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const Values w(y[s][r]);
#pragma unroll
          for (int i = 0; i < kVector; ++i)
            sum[m * kRows + r] = __fmaf_rn(x.at[i], w.at[i], sum[m * kRows + r]);
        }
      }
    };
    if (shard > 0) {
#pragma unroll
      for (int s = 0; s < kAhead; ++s) load(s, k0 + s * kStep + own, end);
    }
    // As above, no round ends early.
    for (; k0 + kRound <= end; k0 += kRound) {
#pragma unroll
      for (int s = 0; s < kAhead; ++s) {
        add(s);
        load(s, k0 + kRound + s * kStep + own, end);
      }
    }
#pragma unroll
    for (int s = 0; s < kAhead; ++s)
      if (k0 + s * kStep + own < end) add(s);
    count_flops(2ULL * n_k * min(kM, p.m - first) * min(kRows, p.n - n));
    const Sums sums(sum);
#pragma unroll
    for (int i = 0; i < Sums::kLeft; ++i) total[i][shard] = sums.of[i];
  }
#pragma unroll
  for (int i = 0; i < Sums::kLeft; ++i) {
    const int at = Sums::at(i), m = first + at / kRows, column = n + at % kRows;
    if (at < kM * kRows && m < p.m && column < p.n)
      store(p, m, column, sum_of_neighbours(total[i]));
  }
}
#endif

// What a(p) gives is a, and may be used once the grid before has ended; b may be read before that
// where nothing writes it.
template <class A>
__device__ __forceinline__ void begin(const MatvecParams& p, int block, A a) {
  if (!p.is_settled) begin_early();
  run(p, block, [&] {
    if (p.is_settled) begin_early();
    return a(p);
  });
}

#ifdef TEGULA_AFTER
// a is what a tile program makes, whose text this file is included behind: it runs in every block,
// since that takes less time than a launch of its own (tile_prologue_text.h). Without the least
// number of blocks the compiler would rather spill than have fewer of them.
struct After {
  tile::Prologue first;
  Joined<MatvecParams, kMostMatvecsAfter> calls;
};

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    matvecs_after(const __grid_constant__ After p) {
  const JoinedBlock at = joined_block(p.calls);
  begin(p.calls.of[at.call], static_cast<int>(at.block),
        [&](const MatvecParams&) { return static_cast<const In*>(tile::prologue(p.first)); });
}
#else
__device__ __forceinline__ const In* rows_of(const MatvecParams& p) {
  return static_cast<const In*>(p.a);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    matvec(const __grid_constant__ MatvecParams p) {
  begin(p, static_cast<int>(blockIdx.x), rows_of);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    matvecs(const __grid_constant__ Joined<MatvecParams> p) {
  const JoinedBlock at = joined_block(p);
  begin(p.of[at.call], static_cast<int>(at.block), rows_of);
}
#endif
