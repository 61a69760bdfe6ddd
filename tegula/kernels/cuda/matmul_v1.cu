// C = A B in f32, one output a thread: every multiply-add reads both of its factors from memory.
//
//   a [m, k], b [k, n], c [m, n]: f32, row after row
//
// Global reads: 2 m n k elements (2 N³). A warp computes 32 neighbours of a row, so its read of A
// is one address and its read of B one line: the L1 cache serves nearly all of them, and its rate
// is the limit. As on every f32 rung, an output is one chain of multiply-adds over ascending k, so
// all rungs give the same bits.
#include "tegula/kernels/cuda/count.cuh"
#include "tegula/kernels/cuda/matmul_params.h"

using namespace tegula::cuda;

// Grid (⌈n/32⌉, ⌈m/8⌉) of 256 threads.
extern "C" __global__ void __launch_bounds__(256) matmul_v1(const MatmulRungParams p) {
  const int row = blockIdx.y * 8 + threadIdx.x / 32;
  const int column = blockIdx.x * 32 + threadIdx.x % 32;
  if (row >= p.m || column >= p.n) return;
  const float* a = p.a + static_cast<long long>(row) * p.k;
  const float* b = p.b + column;
  float sum = 0;
  for (int k = 0; k < p.k; ++k) sum = __fmaf_rn(a[k], b[static_cast<long long>(k) * p.n], sum);
  count_flops(2 * p.k);
  p.c[static_cast<long long>(row) * p.n + column] = sum;
}
