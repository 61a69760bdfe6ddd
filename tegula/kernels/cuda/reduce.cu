// Sums, products and extremes over any dims: chains of a fixed length, joined in a fixed order.
//
//   out[i] = op over r of x[i, r]: part c is the chain over r in [c·chunk, (c + 1)·chunk); parts c,
//   c + 8, … are joined one after the other, and then the eight that come of it.
//
// Variant, by -D: TEGULA_T the elements' type, or TEGULA_BF16 1; TEGULA_OP 0 sum, 1 max, 2 min,
// 3 prod.
#include "tegula/kernels/cuda/elements.cuh"
#include "tegula/kernels/cuda/strided.cuh"

using namespace tegula::cuda;

__device__ inline Value join(Value a, Value b) {
#if TEGULA_OP == 0
  return a + b;
#elif TEGULA_OP == 1
  return a > b || a != a ? a : b;
#elif TEGULA_OP == 2
  return a < b || a != a ? a : b;
#else
  return a * b;
#endif
}

constexpr int kUnroll = 16;

// Grid (columns, parts): a thread has one chain of one result.
extern "C" __global__ void __launch_bounds__(256)
    reduce_chunks(const __grid_constant__ ReduceParams p) {
  begin_early();
  const long long i = flat_thread(), part = blockIdx.y;
  if (i >= p.kept.count) return;
  const Stored* x = static_cast<const Stored*>(p.x) + offset_of(p.kept, i, 0);
  const long long begin = part * p.chunk, end = min(p.reduced.count, begin + p.chunk);
  long long r = begin;
  // What is over nothing, too.
#if TEGULA_OP == 0
  Value sum = 0;
#elif TEGULA_OP == 3
  Value sum = 1;
#else
  Value sum = TEGULA_OP == 1 ? kNegativeInfinity : -kNegativeInfinity;
#endif
  for (; r + kUnroll <= end; r += kUnroll) {
    Value v[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) v[u] = value_of(x[offset_of(p.reduced, r + u, 0)]);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) sum = join(sum, v[u]);
  }
  for (; r < end; ++r) sum = join(sum, value_of(x[offset_of(p.reduced, r, 0)]));
  count_flops(end - begin);
  if (p.n_parts == 1)
    static_cast<Stored*>(p.out)[offset_of(p.kept, i, 1)] = stored_of(sum);
  else
    reinterpret_cast<Value*>(p.parts)[part * p.kept.count + i] = sum;
}

// A block has 32 results; row g of its threads joins parts g, g + kGroups, …, then the rows are
// joined in order.
constexpr int kGroups = 8;
extern "C" __global__ void __launch_bounds__(32 * kGroups)
    reduce_parts(const __grid_constant__ ReduceParams p) {
  begin_early();
  __shared__ Value of_group[kGroups][32];
  const int column = threadIdx.x % 32, group = threadIdx.x / 32;
  const long long i = static_cast<long long>(blockIdx.x) * 32 + column;
  if (i < p.kept.count && group < p.n_parts) {
    const Value* parts = reinterpret_cast<const Value*>(p.parts) + i;
    Value sum = parts[group * p.kept.count];
#pragma unroll 8
    for (int c = group + kGroups; c < p.n_parts; c += kGroups)
      sum = join(sum, parts[c * p.kept.count]);
    of_group[group][column] = sum;
  }
  __syncthreads();
  if (i >= p.kept.count || group != 0) return;
  Value sum = of_group[0][column];
  for (int g = 1; g < kGroups && g < p.n_parts; ++g) sum = join(sum, of_group[g][column]);
  static_cast<Stored*>(p.out)[offset_of(p.kept, i, 1)] = stored_of(sum);
}
