// Slices of a tensor by ids: gathered, or met with others by `scatter`.
//
// Variant, by -D: TEGULA_ID64 0 | 1; for gather TEGULA_BYTES; for scatter TEGULA_T, the elements'
// type, or TEGULA_BF16 1, TEGULA_MODE: 0 set, 1 add, 2 mul, 3 max, 4 min, and of those that meet
// TEGULA_WIDE columns side by side that a thread has: 1, or 4. TEGULA_FLAT as in strided.cuh.
#include "tegula/kernels/cuda/joined.cuh"
#include "tegula/kernels/cuda/strided.cuh"
#ifdef TEGULA_T
#include "tegula/kernels/cuda/elements.cuh"
#include "tegula/kernels/cuda/put.cuh"
#endif

using namespace tegula::cuda;

#ifndef TEGULA_T
// An id outside of x gives zeros. Threads over elements of y, neighbours beside each other.
extern "C" __global__ void __launch_bounds__(256) gather(const __grid_constant__ IndexParams p) {
  begin_early();
  const long long per_outer = p.index.count * p.inner.count, all = p.outer.count * per_outer;
  for (long long e = flat_thread(); e < all; e += flat_threads()) {
    const auto [o, rest] = divided(e, per_outer);
    const auto [i, q] = divided(rest, p.inner.count);
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

constexpr int kThreads = 256;

#if TEGULA_MODE != 0
// The ids as rows of i32, n for those outside of x.
extern "C" __global__ void __launch_bounds__(kThreads)
    row_ids(const __grid_constant__ ScatterParams p) {
  begin_early();
  const IndexParams& c = p.call;
  const long long all = c.outer.count * c.index.count;
  for (long long e = flat_thread(); e < all; e += flat_threads()) {
    const auto [o, i] = divided(e, c.index.count);
    const long long id = id_at(c.ids, offset_of(c.outer, o, 2) + offset_of(c.index, i, 2));
    p.ids[e] = static_cast<int>(id < 0 || id >= c.n ? c.n : id);
  }
}

constexpr int kWide = TEGULA_WIDE;
template <class T>
struct alignas(kWide * sizeof(T)) Side {
  T at[kWide];
};

// The slices of y meet those of x in the order of places, whatever runs when: ids are sorted, and a
// warp goes through all of one id. Warps: a place in a row's sorted ids, by groups of 32 · kWide
// columns, kWide of which the loops count as one.
extern "C" __global__ void __launch_bounds__(kThreads, TEGULA_FLAT ? 4 : 1)
    scatter(const __grid_constant__ ScatterParams p) {
  begin_early();
  constexpr int kAhead = kWide > 1 ? 8 : 16;  // slices that a thread loads at once
  const IndexParams& c = p.call;
  const long long n = c.index.count, across = (c.inner.count + 31) / 32;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const long long warp = (static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x) / 32;
  const auto [slice, group] = divided(warp, across);
  const auto [o, first] = divided(slice, n);
  if (o >= c.outer.count) return;
  const int* ids = p.ids + o * n;
  const int* places = p.places + o * n;
  const int id = ids[first], id_before = first > 0 ? ids[first - 1] : -1;
  bool is_same = first + lane < n && ids[first + lane] == id;
  int place = first + lane < n ? places[first + lane] : 0;
  if (id == c.n || id_before == id) return;
  const long long column = group * 32 + lane;
  const bool is_inside = column < c.inner.count;
  const long long q = is_inside ? column : 0;
  const auto* y =
      static_cast<const Side<Stored>*>(c.y) + offset_of(c.outer, o, 1) + offset_of(c.inner, q, 1);
  auto* x = static_cast<Side<Stored>*>(c.x) + offset_of(c.outer, o, 0) + id * c.n_stride +
            offset_of(c.inner, q, 0);
  const Side<Stored> old = *x;
  Side<Value> sum;
#pragma unroll
  for (int w = 0; w < kWide; ++w) sum.at[w] = value_of(old.at[w]);
  for (long long base = first;;) {
    const long long mine = is_same ? offset_of(c.index, place, 1) : 0;
    const int n_same = __popc(__ballot_sync(0xffffffffu, is_same));
    for (int k = 0; k < n_same; k += kAhead) {
      Side<Stored> of[kAhead];
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        const long long at = __shfl_sync(0xffffffffu, mine, (k + a) % 32);
        if (k + a < n_same) of[a] = y[at];
      }
#pragma unroll
      for (int a = 0; a < kAhead; ++a)
#pragma unroll
        for (int w = 0; w < kWide; ++w)
          if (k + a < n_same) sum.at[w] = combine(sum.at[w], value_of(of[a].at[w]));
    }
    if (is_inside) count_flops(kWide * n_same);
    if (n_same < 32) break;
    base += 32;
    is_same = base + lane < n && ids[base + lane] == id;
    if (is_same) place = places[base + lane];
  }
  if (!is_inside) return;
  Side<Stored> joined;
#pragma unroll
  for (int w = 0; w < kWide; ++w) joined.at[w] = stored_of(sum.at[w]);
  *x = joined;
}
#endif

#if TEGULA_MODE == 0
extern "C" __global__ void __launch_bounds__(kThreads) put(const __grid_constant__ IndexParams p) {
  begin_early();
  put_slice<kThreads>(p, blockIdx.x, threadIdx.x);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    puts(const __grid_constant__ Joined<IndexParams> p) {
  begin_early();
  const JoinedBlock at = joined_block(p);
  put_slice<kThreads>(p.of[at.call], at.block, threadIdx.x);
}
#endif
#endif
