// C = A B in f32, V × V outputs a thread: what a thread has read serves more than one output.
//
//   a [m, k], b [k, n], c [m, n]: f32, row after row
//
// matmul_v1_5 computes its outputs row by row: an element of A serves V of them, but the V columns
// of B are read again for each row. Global reads: N³/V + N³.
// matmul_v2 keeps all V² sums in registers and adds an outer product per k: V elements of A and V
// of B for V² multiply-adds. Global reads: 2 N³/V.
// A thread's rows and columns are 16 apart, so that neighbours read neighbours.
#include "tegula/kernels/cuda/count.cuh"
#include "tegula/kernels/cuda/matmul_params.h"

namespace tegula::cuda {

constexpr int kV = 8;
constexpr int kSide = 16;          // threads along each side of a block
constexpr int kTile = kSide * kV;  // outputs along each side of a block

// Where a thread works; rows and columns past the end repeat the last one, and are not written.
struct Place {
  int row, column;  // the first of each
  const float *a, *b;
  const MatmulRungParams& p;

  __device__ explicit Place(const MatmulRungParams& params)
      : row(blockIdx.y * kTile + threadIdx.x / kSide),
        column(blockIdx.x * kTile + threadIdx.x % kSide),
        a(params.a),
        b(params.b),
        p(params) {}
  __device__ const float* row_of_a(int i) const {
    return a + static_cast<long long>(min(row + kSide * i, p.m - 1)) * p.k;
  }
  __device__ int column_of_b(int j) const { return min(column + kSide * j, p.n - 1); }
  __device__ void write(int i, int j, float sum) const {
    const int r = row + kSide * i, c = column + kSide * j;
    if (r >= p.m || c >= p.n) return;
    count_flops(2 * p.k);
    p.c[static_cast<long long>(r) * p.n + c] = sum;
  }
};

}  // namespace tegula::cuda

using namespace tegula::cuda;

// Grid (⌈n/128⌉, ⌈m/128⌉) of 256 threads, both kernels.
extern "C" __global__ void __launch_bounds__(256) matmul_v1_5(const MatmulRungParams p) {
  const Place at(p);
#pragma unroll 1
  for (int i = 0; i < kV; ++i) {
    const float* a = at.row_of_a(i);
    float sums[kV] = {};
#pragma unroll 4
    for (int k = 0; k < p.k; ++k) {
      const float* b = p.b + static_cast<long long>(k) * p.n;
      const float x = a[k];
#pragma unroll
      for (int j = 0; j < kV; ++j) sums[j] = __fmaf_rn(x, b[at.column_of_b(j)], sums[j]);
    }
#pragma unroll
    for (int j = 0; j < kV; ++j) at.write(i, j, sums[j]);
  }
}

extern "C" __global__ void __launch_bounds__(256) matmul_v2(const MatmulRungParams p) {
  const Place at(p);
  float sums[kV][kV] = {};
  for (int k = 0; k < p.k; ++k) {
    const float* b = p.b + static_cast<long long>(k) * p.n;
    float x[kV], y[kV];
#pragma unroll
    for (int i = 0; i < kV; ++i) x[i] = at.row_of_a(i)[k];
#pragma unroll
    for (int j = 0; j < kV; ++j) y[j] = b[at.column_of_b(j)];
#pragma unroll
    for (int i = 0; i < kV; ++i)
#pragma unroll
      for (int j = 0; j < kV; ++j) sums[i][j] = __fmaf_rn(x[i], y[j], sums[i][j]);
  }
#pragma unroll
  for (int i = 0; i < kV; ++i)
#pragma unroll
    for (int j = 0; j < kV; ++j) at.write(i, j, sums[i][j]);
}
