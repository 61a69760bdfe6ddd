// Lines along one dim: running sums, the largest element, the k largest.
//
// Variant, by -D: TEGULA_T the elements' type, or TEGULA_BF16 1 or TEGULA_F16 1 of 16 bits;
// TEGULA_SUM the type of a running sum.
#include "tegula/kernels/cuda/elements.cuh"
#include "tegula/kernels/cuda/strided.cuh"

#ifndef TEGULA_SUM
#define TEGULA_SUM float
#endif

using namespace tegula::cuda;

// One chain a line. Neighbouring threads have neighbouring lines.
extern "C" __global__ void __launch_bounds__(128) cumsum(const __grid_constant__ LineParams p) {
  begin_early();
  const long long line = flat_thread();
  if (line >= p.lines.count) return;
  const Stored* x = static_cast<const Stored*>(p.x) + offset_of(p.lines, line, 0);
  Stored* y = static_cast<Stored*>(p.y) + offset_of(p.lines, line, 1);
  TEGULA_SUM sum = 0;
  for (long long i = 0; i < p.n; ++i) {
    sum += static_cast<TEGULA_SUM>(value_of(x[i * p.step[0]]));
    y[i * p.step[1]] = stored_of(sum);
  }
  count_flops(p.n);
}

// NaN before all, then the larger (or the smaller), the lower index among equals.
__device__ inline bool before(Value a, long long i, Value b, long long j, bool is_smallest) {
  const bool a_nan = a != a, b_nan = b != b;
  if (a_nan || b_nan) return a_nan != b_nan ? a_nan : i < j;
  return a != b ? (a > b) != is_smallest : i < j;
}

struct Found {
  Value value;
  long long at;  // -1: none
  __device__ void take(Value v, long long i, bool is_smallest) {
    if (i >= 0 && (at < 0 || before(v, i, value, at, is_smallest))) value = v, at = i;
  }
};

// The first of the warp's.
__device__ inline Found first_of_warp(Found f, bool is_smallest) {
  for (int step = 16; step > 0; step /= 2) {
    const Value v = __shfl_xor_sync(0xffffffffu, f.value, step);
    const long long at = __shfl_xor_sync(0xffffffffu, f.at, step);
    f.take(v, at, is_smallest);
  }
  return f;
}

// A block a line, of whole warps.
extern "C" __global__ void __launch_bounds__(1024) argmax(const __grid_constant__ LineParams p) {
  begin_early();
  __shared__ Value value[32];
  __shared__ long long at[32];
  const long long line = blockIdx.x;
  const Stored* x = static_cast<const Stored*>(p.x) + offset_of(p.lines, line, 0);
  Found best{Value(0), -1};
#pragma unroll 4
  for (long long i = threadIdx.x; i < p.n; i += blockDim.x)
    best.take(value_of(x[i * p.step[0]]), i, p.is_smallest);
  best = first_of_warp(best, p.is_smallest);
  if (threadIdx.x % 32 == 0) value[threadIdx.x / 32] = best.value, at[threadIdx.x / 32] = best.at;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  best.at = -1;
  if (threadIdx.x < blockDim.x / 32) best = {value[threadIdx.x], at[threadIdx.x]};
  best = first_of_warp(best, p.is_smallest);
  if (threadIdx.x == 0)
    static_cast<int*>(p.y)[offset_of(p.lines, line, 1)] = static_cast<int>(max(best.at, 0LL));
}

// A warp a line: each of the k passes finds the first element behind the one found before.
extern "C" __global__ void __launch_bounds__(128) top_k(const __grid_constant__ LineParams p) {
  begin_early();
  const long long line = flat_thread() / 32;
  if (line >= p.lines.count) return;
  const Stored* x = static_cast<const Stored*>(p.x) + offset_of(p.lines, line, 0);
  Stored* value = static_cast<Stored*>(p.y) + offset_of(p.lines, line, 1);
  int* index = static_cast<int*>(p.z) + offset_of(p.lines, line, 2);
  Found last{Value(0), -1};
  for (int j = 0; j < p.k; ++j) {
    Found best{Value(0), -1};
    for (long long i = threadIdx.x % 32; i < p.n; i += 32) {
      const Value v = value_of(x[i * p.step[0]]);
      if (last.at < 0 || before(last.value, last.at, v, i, false)) best.take(v, i, false);
    }
    last = first_of_warp(best, false);
    if (threadIdx.x % 32 == 0) {
      value[j * p.step[1]] = stored_of(last.value);
      index[j * p.step[2]] = static_cast<int>(last.at);
    }
  }
}
