// Contractions of any strides and types: what the kernels of one layout leave over.
//
//   out[b, m, n] = start[b, m, n] + Σ_k a[b, m, k] b[b, k, n]
//
// One ascending chain of fma per output, or per shard of k (a tree of neighbours joins them),
// rounded once: the order of the CPU's products (kernels/cpu/common/contraction.h). A block has 64
// × 64 outputs of one batch index, a thread 4 × 4; offsets of rows, columns and k are looked up, so
// that any loops will do.
//
// Variant, by -D: TEGULA_IN16, TEGULA_OUT16: 0, or 1 of 16 bits (bf16, or f16 by TEGULA_F16);
// TEGULA_T: the type of factors that have not 16 bits; TEGULA_SUM: float, double or u64;
// TEGULA_OUT_T the result's. `start` has the type of the result.
#include "tegula/kernels/cuda/dot_any_params.h"
#include "tegula/kernels/cuda/strided.cuh"

using namespace tegula::cuda;

#if TEGULA_IN16
using In = u16;
__device__ inline TEGULA_SUM sum_of(In x) { return element_to_float(x); }
#else
using In = TEGULA_T;
__device__ inline TEGULA_SUM sum_of(In x) { return static_cast<TEGULA_SUM>(x); }
#endif
#if TEGULA_OUT16
using Out = u16;
__device__ inline Out rounded(TEGULA_SUM x) { return static_cast<u16>(pack_element(x, 0.f)); }
__device__ inline TEGULA_SUM start_of(Out x) { return element_to_float(x); }
#else
using Out = TEGULA_OUT_T;
__device__ inline Out rounded(TEGULA_SUM x) { return static_cast<Out>(x); }
__device__ inline TEGULA_SUM start_of(Out x) { return static_cast<TEGULA_SUM>(x); }
#endif

__device__ inline float chain(float a, float b, float sum) { return __fmaf_rn(a, b, sum); }
__device__ inline double chain(double a, double b, double sum) { return __fma_rn(a, b, sum); }
__device__ inline u64 chain(u64 a, u64 b, u64 sum) { return a * b + sum; }

constexpr int kTile = 64, kStep = 16, kThreads = 256, kEach = 4;
using Sum = TEGULA_SUM;

struct Shared {
  Sum a[kStep][kTile + 4], b[kStep][kTile + 4];
  long long a_row[kTile], b_column[kTile];
  long long a_k[kStep], b_k[kStep];
};

// The sums of k in [begin, end) into `sum`.
__device__ inline void add_products(const DotAnyParams& p, Shared& s, const In* a, const In* b,
                                    long long first_m, long long first_n, long long begin,
                                    long long end, int n_inside, Sum (&sum)[kEach][kEach]) {
  const int tm = threadIdx.x / 16, tn = threadIdx.x % 16;
  // Neighbouring threads read neighbours where an operand has any: along k or along its own side.
  const bool a_by_k = p.k.stride[0][p.k.rank > 0 ? p.k.rank - 1 : 0] == 1;
  const bool b_by_k = p.k.stride[1][p.k.rank > 0 ? p.k.rank - 1 : 0] == 1;
  for (long long k0 = begin; k0 < end; k0 += kStep) {
    const int n_k = static_cast<int>(min(static_cast<long long>(kStep), end - k0));
    __syncthreads();
    if (threadIdx.x < n_k) s.a_k[threadIdx.x] = offset_of(p.k, k0 + threadIdx.x, 0);
    if (threadIdx.x >= 32 && threadIdx.x - 32 < n_k)
      s.b_k[threadIdx.x - 32] = offset_of(p.k, k0 + threadIdx.x - 32, 1);
    __syncthreads();
    for (int e = threadIdx.x; e < kTile * kStep; e += kThreads) {
      const int ak = a_by_k ? e % kStep : e / kTile, am = a_by_k ? e / kStep : e % kTile;
      const int bk = b_by_k ? e % kStep : e / kTile, bn = b_by_k ? e / kStep : e % kTile;
      s.a[ak][am] =
          ak < n_k && first_m + am < p.m.count ? sum_of(a[s.a_row[am] + s.a_k[ak]]) : Sum(0);
      s.b[bk][bn] =
          bk < n_k && first_n + bn < p.n.count ? sum_of(b[s.b_column[bn] + s.b_k[bk]]) : Sum(0);
    }
    __syncthreads();
    count_flops(2ULL * static_cast<u32>(n_k * n_inside));
    for (int k = 0; k < n_k; ++k) {
      Sum x[kEach], y[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i) x[i] = s.a[k][tm * kEach + i], y[i] = s.b[k][tn * kEach + i];
#pragma unroll
      for (int i = 0; i < kEach; ++i)
#pragma unroll
        for (int j = 0; j < kEach; ++j) sum[i][j] = chain(x[i], y[j], sum[i][j]);
    }
  }
}

// Grid (tiles of n, tiles of m, batch).
extern "C" __global__ void __launch_bounds__(kThreads)
    dot_any(const __grid_constant__ DotAnyParams p) {
  begin_early();
  __shared__ Shared s;
  const long long first_m = static_cast<long long>(blockIdx.y) * kTile;
  const long long first_n = static_cast<long long>(blockIdx.x) * kTile;
  for (long long batch = blockIdx.z; batch < p.batch.count; batch += gridDim.z) {
    const In* a = static_cast<const In*>(p.a) + offset_of(p.batch, batch, 0);
    const In* b = static_cast<const In*>(p.b) + offset_of(p.batch, batch, 1);
    __syncthreads();
    if (threadIdx.x < kTile && first_m + threadIdx.x < p.m.count)
      s.a_row[threadIdx.x] = offset_of(p.m, first_m + threadIdx.x, 0);
    if (threadIdx.x >= kTile && threadIdx.x < 2 * kTile &&
        first_n + threadIdx.x - kTile < p.n.count)
      s.b_column[threadIdx.x - kTile] = offset_of(p.n, first_n + threadIdx.x - kTile, 1);
    __syncthreads();

    const int tm = threadIdx.x / 16, tn = threadIdx.x % 16;
    const auto place = [&](int i, int j) {
      return offset_of(p.batch, batch, 2) + offset_of(p.m, first_m + tm * kEach + i, 2) +
             offset_of(p.n, first_n + tn * kEach + j, 2);
    };
    const auto is_inside = [&](int i, int j) {
      return first_m + tm * kEach + i < p.m.count && first_n + tn * kEach + j < p.n.count;
    };
    int n_inside = 0;  // of the thread's outputs
#pragma unroll
    for (int e = 0; e < kEach * kEach; ++e) n_inside += is_inside(e / kEach, e % kEach);
    // Shards in order; of a tree of neighbours, level l holds the sum of 2^l shards that waits for
    // its sibling.
    Sum waiting[3][kEach][kEach], sum[kEach][kEach];
    for (int shard = 0; shard < p.n_shards; ++shard) {
#pragma unroll
      for (int i = 0; i < kEach; ++i)
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
          sum[i][j] = Sum(0);
          if (p.start != nullptr && is_inside(i, j))
            sum[i][j] = start_of(static_cast<const Out*>(
                p.start)[offset_of(p.start_batch, batch, 0) +
                         offset_of(p.start_m, first_m + tm * kEach + i, 0) +
                         offset_of(p.start_n, first_n + tn * kEach + j, 0)]);
        }
      const long long length = p.k.count / p.n_shards;
      add_products(p, s, a, b, first_m, first_n, shard * length, (shard + 1) * length, n_inside,
                   sum);
#pragma unroll
      for (int level = 0; level < 3; ++level) {
        if (((shard + 1) >> level & 1) != 0 && p.n_shards > (1 << level)) {
#pragma unroll
          for (int i = 0; i < kEach; ++i)
#pragma unroll
            for (int j = 0; j < kEach; ++j) waiting[level][i][j] = sum[i][j];
          break;
        }
        if (p.n_shards <= (1 << level)) break;
        count_flops(n_inside);
#pragma unroll
        for (int i = 0; i < kEach; ++i)
#pragma unroll
          for (int j = 0; j < kEach; ++j) sum[i][j] = waiting[level][i][j] + sum[i][j];
      }
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i)
#pragma unroll
      for (int j = 0; j < kEach; ++j)
        if (is_inside(i, j)) static_cast<Out*>(p.out)[place(i, j)] = rounded(sum[i][j]);
  }
}
