// y[m, n] = sx[m] Σ_g scale[g, n] Σ_k x[m, k] q[k, n]: whole sums within a group by dp4a, then one
// chain of fma over the groups, as on the CPU.
//
// A block has kRows × 64 outputs. x and q wait in shared memory four k to a word, those past a
// group's end 0; of q, whose columns lie beside each other, four rows of bytes are turned.
//
// Variant, by -D: TEGULA_ROWS 64 | 16 of a block; TEGULA_BITS 8 | 4 of a weight.
#include "tegula/kernels/cuda/count.cuh"
#include "tegula/kernels/cuda/dot_i8_params.h"
#include "tegula/kernels/cuda/ptx/sync.cuh"

using namespace tegula::cuda;

constexpr int kThreads = 256, kColumns = 64, kRows = TEGULA_ROWS;
constexpr int kStep = 64, kWords = kStep / 4;  // of k
constexpr int kEachRow = kRows / 16, kEachColumn = 4;

// Weights k … k + 3 of column n as bytes of a word; rows from `end` on are 0.
__device__ inline u32 weights(const DotI8Params& p, long long k, long long end, long long n) {
  u32 word = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (k + i >= end) break;
#if TEGULA_BITS == 4
    const u8 both = static_cast<u8>(p.q[(k + i) / 2 * p.q_stride[0] + n * p.q_stride[1]]);
    const int q = (both >> ((k + i) % 2 * 4) & 15) - 8;
#else
    const int q = p.q[(k + i) * p.q_stride[0] + n * p.q_stride[1]];
#endif
    word |= static_cast<u32>(q & 255) << (8 * i);
  }
  return word;
}

__device__ inline u32 rows_word(const DotI8Params& p, long long m, long long k, long long end) {
  const signed char* x = p.x + m * p.x_stride[0];
  if (p.x_stride[1] == 1 && k + 4 <= end && (reinterpret_cast<u64>(x + k) & 3) == 0)
    return *reinterpret_cast<const u32*>(x + k);
  u32 word = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (k + i < end) word |= static_cast<u32>(x[(k + i) * p.x_stride[1]] & 255) << (8 * i);
  return word;
}

// Grid (tiles of n, tiles of m).
extern "C" __global__ void __launch_bounds__(kThreads)
    dot_i8(const __grid_constant__ DotI8Params p) {
  begin_early();
  __shared__ u32 a[kRows][kWords + 1], b[kWords][kColumns];
  const long long m0 = static_cast<long long>(blockIdx.y) * kRows;
  const long long n0 = static_cast<long long>(blockIdx.x) * kColumns;
  const int tm = threadIdx.x / 16, tn = threadIdx.x % 16;
  float y[kEachRow][kEachColumn] = {};
  for (long long g = 0; g < p.groups; ++g) {
    const long long begin = g * p.group, end = begin + p.group;
    int sum[kEachRow][kEachColumn] = {};
    for (long long k0 = begin; k0 < end; k0 += kStep) {
      __syncthreads();
      for (int e = threadIdx.x; e < kRows * kWords; e += kThreads) {
        const int row = e / kWords, word = e % kWords;
        a[row][word] = m0 + row < p.m ? rows_word(p, m0 + row, k0 + 4 * word, end) : 0;
      }
      for (int e = threadIdx.x; e < kColumns * kWords; e += kThreads) {
        const int column = e % kColumns, word = e / kColumns;
        b[word][column] = n0 + column < p.n ? weights(p, k0 + 4 * word, end, n0 + column) : 0;
      }
      __syncthreads();
#pragma unroll 4
      for (int w = 0; w < kWords; ++w)
#pragma unroll
        for (int i = 0; i < kEachRow; ++i)
#pragma unroll
          for (int j = 0; j < kEachColumn; ++j)
            sum[i][j] = __dp4a(static_cast<int>(a[tm + 16 * i][w]),
                               static_cast<int>(b[w][tn + 16 * j]), sum[i][j]);
    }
#pragma unroll
    for (int j = 0; j < kEachColumn; ++j) {
      const long long n = n0 + tn + 16 * j;
      const float by = n < p.n ? p.scale[g * p.scale_stride[0] + n * p.scale_stride[1]] : 0.f;
#pragma unroll
      for (int i = 0; i < kEachRow; ++i)
        y[i][j] = __fmaf_rn(__int2float_rn(sum[i][j]), by, y[i][j]);
    }
  }
#pragma unroll
  for (int i = 0; i < kEachRow; ++i)
#pragma unroll
    for (int j = 0; j < kEachColumn; ++j) {
      const long long m = m0 + tm + 16 * i, n = n0 + tn + 16 * j;
      if (m >= p.m || n >= p.n) continue;
      count_flops((2 * p.group + 2) * p.groups + 1);
      p.y[m * p.y_stride[0] + n * p.y_stride[1]] = __fmul_rn(y[i][j], p.sx[m * p.sx_stride]);
    }
}
