// Shared by the ways of matvec.cu.
#pragma once

#include "tegula/kernels/cuda/count.cuh"
#include "tegula/kernels/cuda/joined.cuh"
#include "tegula/kernels/cuda/matvec_params.h"
#include "tegula/kernels/cuda/ptx/sync.cuh"
#include "tegula/kernels/cuda/ptx/types.cuh"

namespace tegula::cuda {

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

#if TEGULA_OUT16
using Out = u16;
__device__ inline u16 rounded(float x) { return static_cast<u16>(pack_element(x, 0.f)); }
#else
using Out = float;
__device__ inline float rounded(float x) { return x; }
#endif
__device__ inline Out store(const MatvecParams& p, int m, int n, float x) {
  count_flops(kShards - 1);
  return static_cast<Out*>(p.c)[m * p.ldc + n] = rounded(x);
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

}  // namespace tegula::cuda
