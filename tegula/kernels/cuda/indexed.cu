// Slices of a tensor by ids: gathered, or met with others by `scatter`.
//
// Variant, by -D: TEGULA_ID64 0 | 1; for gather TEGULA_BYTES; for scatter TEGULA_T, the elements'
// type, or TEGULA_BF16 1, and TEGULA_MODE: 0 set, 1 add, 2 mul, 3 max, 4 min.
#include "tegula/kernels/cuda/joined.cuh"
#include "tegula/kernels/cuda/strided.cuh"
#ifdef TEGULA_T
#include "tegula/kernels/cuda/elements.cuh"
#endif

using namespace tegula::cuda;

#ifndef TEGULA_T
// An id outside of x gives zeros. Threads over elements of y, neighbours beside each other.
extern "C" __global__ void __launch_bounds__(256) gather(const __grid_constant__ IndexParams p) {
  begin_early();
  const long long per_outer = p.index.count * p.inner.count, all = p.outer.count * per_outer;
  for (long long e = flat_thread(); e < all; e += flat_threads()) {
    const long long o = e / per_outer, rest = e % per_outer;
    const long long i = rest / p.inner.count, q = rest % p.inner.count;
    const long long id = id_at(p.ids, offset_of(p.outer, o, 2) + offset_of(p.index, i, 2));
    MovedElement v{};
    if (id >= 0 && id < p.n)
      v = static_cast<const MovedElement*>(
          p.x)[offset_of(p.outer, o, 0) + id * p.n_stride + offset_of(p.inner, q, 0)];
    static_cast<MovedElement*>(
        p.y)[offset_of(p.outer, o, 1) + offset_of(p.index, i, 1) + offset_of(p.inner, q, 1)] = v;
  }
}
#else

__device__ inline Value combine(Value x, Value y) {
#if TEGULA_MODE == 0
  return y;
#elif TEGULA_MODE == 1
  return x + y;
#elif TEGULA_MODE == 2
  return x * y;
#elif TEGULA_MODE == 3
  return x > y || x != x ? x : y;
#else
  return x < y || x != x ? x : y;
#endif
}

constexpr int kThreads = 256, kColumns = 4;
constexpr int kIds = 4;  // that a thread compares at once

// The slices of y meet those of x in the order of ids, whatever runs when: a block has one id, and
// does nothing if an earlier one is the same; else it goes through all that are, in order.
extern "C" __global__ void __launch_bounds__(kThreads)
    scatter(const __grid_constant__ IndexParams p) {
  begin_early();
  const long long o = blockIdx.x / p.index.count, first = blockIdx.x % p.index.count;
  const long long ids = offset_of(p.outer, o, 2);
  const long long id = id_at(p.ids, ids + offset_of(p.index, first, 2));
  if (id < 0 || id >= p.n) return;
  bool is_known = false;
#pragma unroll 4
  for (long long i = threadIdx.x; i < first; i += kThreads)
    is_known = is_known || id_at(p.ids, ids + offset_of(p.index, i, 2)) == id;
  if (__syncthreads_or(is_known)) return;

  __shared__ u32 matches[kIds * kThreads / 32];
  const Stored* y = static_cast<const Stored*>(p.y) + offset_of(p.outer, o, 1);
  Stored* x = static_cast<Stored*>(p.x) + offset_of(p.outer, o, 0) + id * p.n_stride;
  const long long column = static_cast<long long>(blockIdx.y) * kThreads * kColumns + threadIdx.x;
  Value sum[kColumns];
#pragma unroll
  for (int c = 0; c < kColumns; ++c)
    if (column + c * kThreads < p.inner.count)
      sum[c] = value_of(x[offset_of(p.inner, column + c * kThreads, 0)]);
  for (long long base = first; base < p.index.count; base += kIds * kThreads) {
#pragma unroll
    for (int k = 0; k < kIds; ++k) {
      const long long i = base + k * kThreads + threadIdx.x;
      const bool is_same = i < p.index.count && id_at(p.ids, ids + offset_of(p.index, i, 2)) == id;
      const u32 warp = __ballot_sync(0xffffffffu, is_same);
      if (threadIdx.x % 32 == 0) matches[(k * kThreads + threadIdx.x) / 32] = warp;
    }
    __syncthreads();
    for (int w = 0; w < kIds * kThreads / 32; ++w)
      for (u32 rest = matches[w]; rest != 0; rest &= rest - 1) {
        const long long at = offset_of(p.index, base + 32 * w + (__ffs(rest) - 1), 1);
#pragma unroll
        for (int c = 0; c < kColumns; ++c)
          if (column + c * kThreads < p.inner.count) {
            sum[c] =
                combine(sum[c], value_of(y[at + offset_of(p.inner, column + c * kThreads, 1)]));
            count_flops(TEGULA_MODE != 0);
          }
      }
    __syncthreads();
  }
#pragma unroll
  for (int c = 0; c < kColumns; ++c)
    if (column + c * kThreads < p.inner.count)
      x[offset_of(p.inner, column + c * kThreads, 0)] = stored_of(sum[c]);
}

#if TEGULA_MODE == 0
// Where nothing is joined the last of an id's slices stands: a block has one slice, and does
// nothing if a later one has its id. Blocks: those of a slice beside each other.
__device__ __forceinline__ void put_slice(const IndexParams& p, u32 block) {
  const u32 across =
      static_cast<u32>((p.inner.count + kThreads * kColumns - 1) / (kThreads * kColumns));
  const long long slice = block / across, column = block % across * kThreads * kColumns;
  const long long o = slice / p.index.count, i = slice % p.index.count;
  const long long ids = offset_of(p.outer, o, 2);
  const long long id = id_at(p.ids, ids + offset_of(p.index, i, 2));
  if (id < 0 || id >= p.n) return;
  bool is_later = false;
#pragma unroll 4
  for (long long k = i + 1 + threadIdx.x; k < p.index.count; k += kThreads)
    is_later = is_later || id_at(p.ids, ids + offset_of(p.index, k, 2)) == id;
  if (__syncthreads_or(is_later)) return;
  const Stored* y =
      static_cast<const Stored*>(p.y) + offset_of(p.outer, o, 1) + offset_of(p.index, i, 1);
  Stored* x = static_cast<Stored*>(p.x) + offset_of(p.outer, o, 0) + id * p.n_stride;
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    const long long q = column + c * kThreads + threadIdx.x;
    if (q < p.inner.count) x[offset_of(p.inner, q, 0)] = y[offset_of(p.inner, q, 1)];
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) put(const __grid_constant__ IndexParams p) {
  begin_early();
  put_slice(p, blockIdx.x);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    puts(const __grid_constant__ Joined<IndexParams> p) {
  begin_early();
  const JoinedBlock at = joined_block(p);
  put_slice(p.of[at.call], at.block);
}
#endif
#endif
