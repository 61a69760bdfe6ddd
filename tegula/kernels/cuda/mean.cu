// The mean of three neighbours, the smallest kernel that shared memory helps: a ladder of two
// rungs.
//
//   naive: each thread reads its three elements of global memory: 3 · 128 = 384 reads a block
//   shared: the block reads what its threads need once, two more than it has threads, 128 + 2 =
//   130, into shared memory, and each thread takes its three from there
// The same bits: ((x_i + x_(i+1)) + x_(i+2)) / 3.
//
// It saves requests: neighbours' reads share lines of the L1 cache, so that the naive rung moves
// hardly more bytes of device memory.
//
// Variant, by -D: TEGULA_COUNT 1: reads are counted, in builds for tests alone.
#include "tegula/kernels/cuda/mean_params.h"
#include "tegula/kernels/cuda/ptx/sync.cuh"

#ifndef TEGULA_COUNT
#define TEGULA_COUNT 0
#endif

using namespace tegula::cuda;

__device__ inline void count(const MeanParams& p, int which) {
#if TEGULA_COUNT
  atomicAdd(p.reads + which, 1ULL);
#endif
}
__device__ inline float global_read(const MeanParams& p, long long i) {
  count(p, 0);
  return p.x[i];
}
__device__ inline float shared_read(const MeanParams& p, const float* from) {
  count(p, 1);
  return *from;
}
__device__ inline float mean(float a, float b, float c) { return __fdiv_rn((a + b) + c, 3.f); }

extern "C" __global__ void __launch_bounds__(kMeanThreads) mean_naive(const MeanParams p) {
  const long long i = static_cast<long long>(blockIdx.x) * kMeanThreads + threadIdx.x;
  if (i >= p.n) return;
  const float a = global_read(p, i), b = global_read(p, i + 1), c = global_read(p, i + 2);
  p.y[i] = mean(a, b, c);
}

extern "C" __global__ void __launch_bounds__(kMeanThreads) mean_shared(const MeanParams p) {
  __shared__ float tile[kMeanThreads + 2];
  const long long first = static_cast<long long>(blockIdx.x) * kMeanThreads;
  for (int j = threadIdx.x; j < kMeanThreads + 2 && first + j < p.n + 2; j += kMeanThreads)
    tile[j] = global_read(p, first + j);
  __syncthreads();
  const int j = threadIdx.x;
  if (first + j >= p.n) return;
  const float a = shared_read(p, tile + j), b = shared_read(p, tile + j + 1);
  p.y[first + j] = mean(a, b, shared_read(p, tile + j + 2));
}
