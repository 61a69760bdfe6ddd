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
// TEGULA_B_MN_MAJOR 0, or 1 with TEGULA_COLUMNS 16 | 32 | 64 and 1 | 2 | 4 | 8 rows; TEGULA_IN16,
// TEGULA_OUT16 0: f32, 1: bf16, or f16 with TEGULA_F16.
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
constexpr int kColumns = TEGULA_COLUMNS, kAcross = kColumns / kVector;
constexpr int kGroups = 4 * kVector, kThreads = kGroups * kAcross;
// A group has k / kGroups loads one after another: so many of them are on their way at once.
constexpr int kAhead = kShards > 1 ? 4 : kM <= 4 ? 24 : 8, kChunk = kAhead * kGroups;
constexpr int kAtOnce = kM < 4 ? kM : 4;  // rows that are joined at once
constexpr int kJoins = kM / kAtOnce;

// sums[g][n], g + 16 added to g, then g + 8, …: of one column n.
__device__ __forceinline__ float sum_of_groups(const float (*sums)[kColumns], int n) {
  float of[kGroups / 2];
#pragma unroll
  for (int g = 0; g < kGroups / 2; ++g) of[g] = sums[g][n] + sums[g + kGroups / 2][n];
#pragma unroll
  for (int half = kGroups / 4; half > 0; half /= 2)
#pragma unroll
    for (int g = 0; g < kGroups / 4; ++g)
      if (g < half) of[g] += of[g + half];
  return of[0];
}

// Blocks: ⌈n / kColumns⌉ for each kM rows.
__device__ __forceinline__ void run(const MatvecParams& p, int block) {
  __shared__ uint4 a[kM][kChunk / kVector];
  __shared__ float sums[kAtOnce][kGroups][kColumns];
  const int across = threadIdx.x % kAcross, group = threadIdx.x / kAcross;
  const int n_columns = (p.n + kColumns - 1) / kColumns;
  const int n0 = block % n_columns * kColumns, n = n0 + across * kVector;
  const int first = block / n_columns * kM;
  const int shard_k = p.k / kShards;
  const In* b = static_cast<const In*>(p.b) + n;
  const int m_joined = threadIdx.x / kColumns, n_joined = threadIdx.x % kColumns;
  float total[kJoins][kShards];
#pragma unroll
  for (int shard = 0; shard < kShards; ++shard) {
    float sum[kM][kVector] = {};
    int n_k = 0;  // of the sums
    const int end = (shard + 1) * shard_k;
    const auto row_of_b = [&](int k) {
      return n < p.n && k < end ? load_streamed(b + k * p.ldb) : uint4{0, 0, 0, 0};
    };
    uint4 y[kAhead];
#pragma unroll
    for (int s = 0; s < kAhead; ++s) y[s] = row_of_b(shard * shard_k + s * kGroups + group);
    for (int k0 = shard * shard_k; k0 < end; k0 += kChunk) {
      __syncthreads();
      for (int i = threadIdx.x; i < kM * kChunk / kVector; i += kThreads) {
        const int m = i / (kChunk / kVector), at = i % (kChunk / kVector);
        if (k0 + at * kVector < end)
          a[m][at] = *reinterpret_cast<const uint4*>(row_of_a(p, first + m) + k0 + at * kVector);
      }
      __syncthreads();
#pragma unroll
      for (int s = 0; s < kAhead; ++s) {
        const int at = s * kGroups + group, k = k0 + at;
        if (k >= end) break;
        const Values w(y[s]);
        y[s] = row_of_b(k + kChunk);
#pragma unroll
        for (int m = 0; m < kM; ++m) {
#if TEGULA_IN16
          const float x = element_to_float(reinterpret_cast<const In*>(a[m])[at]);
#else
          const float x = reinterpret_cast<const In*>(a[m])[at];
#endif
#pragma unroll
          for (int i = 0; i < kVector; ++i) sum[m][i] = __fmaf_rn(x, w.at[i], sum[m][i]);
        }
        n_k += kCounts;
      }
    }
    if (n < p.n) count_flops(2ULL * n_k * min(kM, p.m - first) * min(kVector, p.n - n));
#pragma unroll
    for (int join = 0; join < kJoins; ++join) {
      __syncthreads();
#pragma unroll
      for (int m = 0; m < kAtOnce; ++m)
#pragma unroll
        for (int i = 0; i < kVector; ++i)
          sums[m][group][across * kVector + i] = sum[join * kAtOnce + m][i];
      __syncthreads();
      total[join][shard] = m_joined < kAtOnce ? sum_of_groups(sums[m_joined], n_joined) : 0.f;
    }
  }
#pragma unroll
  for (int join = 0; join < kJoins; ++join) {
    const int m = first + join * kAtOnce + m_joined;
    if (m_joined < kAtOnce && m < p.m && n0 + n_joined < p.n)
      store(p, m, n0 + n_joined, sum_of_neighbours(total[join]));
  }
}
#else
constexpr int kThreads = 128, kRows = kM > 8 ? 4 : 2;
constexpr int kAhead = kShards > 1 ? 1 : kM <= 2 ? 4 : 2;

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
  using Sums = OverLanes<kM * kRows>;
  float total[Sums::kLeft][kShards];
#pragma unroll
  for (int shard = 0; shard < kShards; ++shard) {
    float sum[kM * kRows] = {};
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
            for (int i = 0; i < kVector; ++i)
              sum[m * kRows + r] = __fmaf_rn(x.at[i], w.at[i], sum[m * kRows + r]);
          }
        }
      }
    }
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
