// Few rows times a matrix: what decoding is made of. Bound by reading b once, 16 bytes a load. Rows
// of b are not asked into the L2 while the grid before runs: with that, the products of Llama-2-7B
// took a fifth longer on an H100 (2.03 in place of 2.50 TB/s). Loads of b stay out of the L1, which
// saves 4 % there. They may, since b is constant while a grid runs: c is apart from it, so are the
// results of calls joined to this one, and the next grid waits for this one before it writes.
//
//   c[m, n] = a[m, k] b[k, n], f32 sums rounded once
//
// b as [n, k]: a warp has kRows columns of c; its lanes walk k side by side, and their sums are
// joined by a tree. b as [k, n]: a block has 64 columns; group g of its threads takes k = g,
// g + kGroups, …, and the groups are joined by a tree. Neither order depends on m: a row has the
// bits that it has alone. With shards every shard of k is such a sum, and a tree of neighbours
// joins them: the bits of the shards' products, added.
//
// Variant, by -D: TEGULA_M rows of a at a time, 1 | 2 | 4 | 8; TEGULA_SHARDS 1 | 2 | 4 | 8;
// TEGULA_B_MN_MAJOR 0 | 1; TEGULA_IN16, TEGULA_OUT16 0: f32, 1: bf16, or f16 with TEGULA_F16.
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

__device__ inline const In* row_of_a(const MatvecParams& p, int m) {
  // Rows past the last are the last, and not written.
  return static_cast<const In*>(p.a) + min(m, p.m - 1) * p.lda;
}

#if TEGULA_B_MN_MAJOR
constexpr int kColumns = 64, kAcross = kColumns / kVector, kThreads = 256;
constexpr int kGroups = kThreads / kAcross;

// Blocks: ⌈n / kColumns⌉ for each kM rows.
__device__ __forceinline__ void run(const MatvecParams& p, int block) {
  __shared__ float sums[kThreads][kVector + 1];
  const int across = threadIdx.x % kAcross, group = threadIdx.x / kAcross;
  const int n_columns = (p.n + kColumns - 1) / kColumns;
  const int n = block % n_columns * kColumns + across * kVector, first = block / n_columns * kM;
  const int shard_k = p.k / kShards;
  float total[kM][kVector][kShards];
#pragma unroll
  for (int shard = 0; shard < kShards; ++shard) {
    float sum[kM][kVector] = {};
    int n_k = 0;  // of the sums
    if (n < p.n) {
      const In* b = static_cast<const In*>(p.b) + n;
#pragma unroll 4
      for (int k = shard * shard_k + group; k < (shard + 1) * shard_k; k += kGroups) {
        const Values y(load_streamed(b + k * p.ldb));
#pragma unroll
        for (int m = 0; m < kM; ++m) {
#if TEGULA_IN16
          const float x = element_to_float(row_of_a(p, first + m)[k]);
#else
          const float x = row_of_a(p, first + m)[k];
#endif
#pragma unroll
          for (int i = 0; i < kVector; ++i) sum[m][i] = __fmaf_rn(x, y.at[i], sum[m][i]);
        }
        n_k += kCounts;
      }
      count_flops(2ULL * n_k * min(kM, p.m - first) * min(kVector, p.n - n));
    }
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kVector; ++i) sums[threadIdx.x][i] = sum[m][i];
      for (int half = kGroups / 2; half > 0; half /= 2) {
        __syncthreads();
        if (group < half)
#pragma unroll
          for (int i = 0; i < kVector; ++i)
            sums[threadIdx.x][i] += sums[threadIdx.x + half * kAcross][i];
      }
#pragma unroll
      for (int i = 0; i < kVector; ++i) total[m][i][shard] = sums[threadIdx.x][i];
    }
  }
  if (group != 0) return;
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      if (first + m < p.m && n + i < p.n)
        store(p, first + m, n + i, sum_of_neighbours(total[m][i]));
}
#else
constexpr int kThreads = 128, kRows = 2, kAhead = kShards > 1 ? 1 : kM <= 2 ? 4 : 2;

// Blocks: ⌈n / (kRows · warps)⌉ for each kM rows.
__device__ __forceinline__ void run(const MatvecParams& p, int block) {
  constexpr int kWarps = kThreads / 32, kColumns = kRows * kWarps;
  const int n_columns = (p.n + kColumns - 1) / kColumns;
  const int lane = threadIdx.x % 32, warp = block % n_columns * kWarps + threadIdx.x / 32;
  const int n = warp * kRows, first = block / n_columns * kM;
  if (n >= p.n) return;
  const In* b[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    b[r] = static_cast<const In*>(p.b) + static_cast<long long>(min(n + r, p.n - 1)) * p.ldb;
  constexpr int kStep = 32 * kVector;
  const int shard_k = p.k / kShards;
  float total[kM][kRows][kShards];
#pragma unroll
  for (int shard = 0; shard < kShards; ++shard) {
    float sum[kM][kRows] = {};
    int n_k = 0;  // of the sums
    const int end = (shard + 1) * shard_k;
    for (int k0 = shard * shard_k + lane * kVector; k0 < end; k0 += kAhead * kStep) {
      uint4 y[kAhead][kRows];
#pragma unroll
      for (int s = 0; s < kAhead; ++s)
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const int k = k0 + s * kStep;
          y[s][r] = k < end ? load_streamed(b[r] + k) : uint4{0, 0, 0, 0};
        }
#pragma unroll
      for (int s = 0; s < kAhead; ++s) {
        const int k = k0 + s * kStep;
        if (k >= end) break;
        n_k += kCounts * kVector;
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          const Values x(*reinterpret_cast<const uint4*>(row_of_a(p, first + m) + k));
#pragma unroll
          for (int r = 0; r < kRows; ++r) {
            const Values w(y[s][r]);
#pragma unroll
            for (int i = 0; i < kVector; ++i) sum[m][r] = __fmaf_rn(x.at[i], w.at[i], sum[m][r]);
          }
        }
      }
    }
    count_flops(2ULL * n_k * min(kM, p.m - first) * min(kRows, p.n - n));
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int r = 0; r < kRows; ++r) total[m][r][shard] = sum[m][r];
  }
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int shard = 0; shard < kShards; ++shard)
#pragma unroll
        for (int step = 16; step > 0; step /= 2)
          total[m][r][shard] += __shfl_xor_sync(0xffffffffu, total[m][r][shard], step);
      const float x = sum_of_neighbours(total[m][r]);
      if (lane == 0 && first + m < p.m && n + r < p.n) store(p, first + m, n + r, x);
    }
}
#endif

extern "C" __global__ void __launch_bounds__(kThreads)
    matvec(const __grid_constant__ MatvecParams p) {
  begin_early();
  run(p, static_cast<int>(blockIdx.x));
}

extern "C" __global__ void __launch_bounds__(kThreads)
    matvecs(const __grid_constant__ Joined<MatvecParams> p) {
  const JoinedBlock at = joined_block(p);
  begin_early();
  run(p.of[at.call], static_cast<int>(at.block));
}
