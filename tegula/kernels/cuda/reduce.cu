// Sums, products and extremes over any dims: chains of a fixed length, joined in a fixed order.
//
//   out[i] = op over r of x[i, r]: part c is the chain over r in [c·chunk, (c + 1)·chunk); parts c,
//   c + 8, … are joined one after the other, and then the eight that come of it.
//
// Variant, by -D: TEGULA_T the elements' type, or TEGULA_BF16 1; TEGULA_OP 0 sum, 1 max, 2 min,
// 3 prod; TEGULA_WIDE results side by side that a thread of reduce_chunks makes at once: 1, or 4.
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

constexpr int kWide = TEGULA_WIDE, kUnroll = kWide == 1 ? 16 : 8;
template <class T>
struct alignas(kWide * sizeof(T)) Side {
  T at[kWide];
};

// A sum over nothing, too.
#if TEGULA_OP == 0
constexpr Value kStart = 0;
#elif TEGULA_OP == 3
constexpr Value kStart = 1;
#else
constexpr Value kStart = TEGULA_OP == 1 ? kNegativeInfinity : -kNegativeInfinity;
#endif

// Grid (columns, parts): a thread has one chain of each of kWide results, which `kept` counts as
// one. Steps are asked for together and joined one after the other.
extern "C" __global__ void __launch_bounds__(256)
    reduce_chunks(const __grid_constant__ ReduceParams p) {
  begin_early();
  const long long i = flat_thread(), part = blockIdx.y;
  if (i >= p.kept.count) return;
  const auto* x = static_cast<const Side<Stored>*>(p.x) + offset_of(p.kept, i, 0);
  const long long begin = part * p.chunk, end = min(p.reduced.count, begin + p.chunk);
  Side<Value> sum;
#pragma unroll
  for (int w = 0; w < kWide; ++w) sum.at[w] = kStart;
  for (long long r = begin; r < end; r += kUnroll) {
    Side<Stored> v[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      if (r + u < end) v[u] = x[offset_of(p.reduced, r + u, 0)];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
#pragma unroll
      for (int w = 0; w < kWide; ++w)
        if (r + u < end) sum.at[w] = join(sum.at[w], value_of(v[u].at[w]));
  }
  count_flops(kWide * (end - begin));
  if (p.n_parts == 1) {
    Side<Stored> result;
#pragma unroll
    for (int w = 0; w < kWide; ++w) result.at[w] = stored_of(sum.at[w]);
    static_cast<Side<Stored>*>(p.out)[offset_of(p.kept, i, 1)] = result;
  } else {
    reinterpret_cast<Side<Value>*>(p.parts)[part * p.kept.count + i] = sum;
  }
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
    constexpr int kAtOnce = 32;
    for (int c = group + kGroups; c < p.n_parts; c += kAtOnce * kGroups) {
      Value v[kAtOnce];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u)
        if (c + u * kGroups < p.n_parts) v[u] = parts[(c + u * kGroups) * p.kept.count];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u)
        if (c + u * kGroups < p.n_parts) sum = join(sum, v[u]);
    }
    of_group[group][column] = sum;
  }
  __syncthreads();
  if (i >= p.kept.count || group != 0) return;
  Value sum = of_group[0][column];
  for (int g = 1; g < kGroups && g < p.n_parts; ++g) sum = join(sum, of_group[g][column]);
  static_cast<Stored*>(p.out)[offset_of(p.kept, i, 1)] = stored_of(sum);
}
