// Rows in stable order, and where values would stand in such rows. NaN is greater than any number.
//
// Variant, by -D: TEGULA_T the elements' type, or TEGULA_BF16 1 or TEGULA_F16 1 of 16 bits.
#include "tegula/kernels/cuda/elements.cuh"
#include "tegula/kernels/cuda/sort_params.h"
#include "tegula/kernels/cuda/strided.cuh"

using namespace tegula::cuda;

__device__ inline bool is_less(Value a, Value b) { return a < b || (b != b && a == a); }
__device__ inline bool comes_before(Value a, Value b, bool is_descending) {
  return is_descending ? is_less(b, a) : is_less(a, b);
}

constexpr int kThreads = 256;

// Every tile of every row in order, by a bitonic network in shared memory. Places tell equals
// apart, so that the order is one of all elements, and what a network may swap does not matter. A
// thread has a pair of each step, or several where there are fewer threads.
extern "C" __global__ void __launch_bounds__(kSortTile / (sizeof(Value) > 4 ? 4 : 2))
    sort_tiles(const __grid_constant__ SortParams p) {
  begin_early();
  __shared__ Value value[kSortTile];
  __shared__ int place[kSortTile];
  const int n_threads = static_cast<int>(blockDim.x);
  const long long tiles = (p.n + kSortTile - 1) / kSortTile;
  const auto [row, tile] = divided(blockIdx.x, tiles);
  const long long first = tile * kSortTile;
  const int n = static_cast<int>(min(static_cast<long long>(kSortTile), p.n - first));
  int padded = 1;
  while (padded < n) padded *= 2;
  const Stored* x = static_cast<const Stored*>(p.x) + offset_of(p.rows, row, 0);
  for (int i = threadIdx.x; i < padded; i += n_threads) {
    value[i] = i < n ? value_of(x[(first + i) * p.step[0]]) : Value(0);
    place[i] = i < n ? i : -1;  // past the end: behind all
  }
  const auto goes_first = [&](int a, int b) {
    if (place[a] < 0 || place[b] < 0) return place[a] >= 0;
    if (comes_before(value[a], value[b], p.is_descending)) return true;
    return !comes_before(value[b], value[a], p.is_descending) && place[a] < place[b];
  };
  for (int size = 2; size <= padded; size *= 2)
    for (int apart = size / 2; apart > 0; apart /= 2) {
      __syncthreads();
      for (int pair = threadIdx.x; pair < padded / 2; pair += n_threads) {
        const int low = 2 * pair - (pair & (apart - 1)), high = low + apart;  // a power of two
        const bool is_up = (low & size) == 0;
        const bool is_in_order = is_up ? goes_first(low, high) : goes_first(high, low);
        if (is_in_order) continue;
        const Value v = value[low];
        const int at = place[low];
        value[low] = value[high], place[low] = place[high];
        value[high] = v, place[high] = at;
      }
    }
  __syncthreads();
  Stored* values = static_cast<Stored*>(p.values) + offset_of(p.rows, row, 1);
  int* indices = p.indices + offset_of(p.rows, row, 2);
  for (int i = threadIdx.x; i < n; i += n_threads) {
    values[(first + i) * p.step[1]] = stored_of(value[i]);
    indices[(first + i) * p.step[2]] = static_cast<int>(first) + place[i];
  }
}

// Neighbouring runs become one. An element's new place is its own within its run and how many of
// the other run come before it; of equals the left run's do.
extern "C" __global__ void __launch_bounds__(kThreads)
    merge_runs(const __grid_constant__ SortParams p) {
  begin_early();
  const long long all = p.rows.count * p.n;
  for (long long e = flat_thread(); e < all; e += flat_threads()) {
    const auto [row, i] = divided(e, p.n);
    const long long from = offset_of(p.rows, row, 0);
    const Stored* x = static_cast<const Stored*>(p.x) + from;
    const long long pair = i - divided(i, 2 * p.run).rest;
    const long long middle = min(pair + p.run, p.n), end = min(pair + 2 * p.run, p.n);
    const bool is_left = i < middle;
    const Value v = value_of(x[i * p.step[0]]);
    long long low = is_left ? middle : pair, high = is_left ? end : middle;
    const long long other = low;
    while (low < high) {  // all before low come before v
      const long long mid = (low + high) / 2;
      const Value w = value_of(x[mid * p.step[0]]);
      const bool is_before =
          is_left ? comes_before(w, v, p.is_descending) : !comes_before(v, w, p.is_descending);
      (is_before ? low : high) = is_before ? mid + 1 : mid;
    }
    const long long to = (is_left ? i : i - middle + pair) + low - other;
    static_cast<Stored*>(p.values)[offset_of(p.rows, row, 1) + to * p.step[1]] = stored_of(v);
    p.indices[offset_of(p.rows, row, 2) + to * p.step[2]] = p.places[from + i * p.step[0]];
  }
}

// A thread a value.
extern "C" __global__ void __launch_bounds__(kThreads)
    searchsorted(const __grid_constant__ SearchParams p) {
  begin_early();
  const long long all = p.rows.count * p.m;
  for (long long e = flat_thread(); e < all; e += flat_threads()) {
    const auto [row, j] = divided(e, p.m);
    const Stored* sorted = static_cast<const Stored*>(p.sorted) + offset_of(p.rows, row, 0);
    const Value v =
        value_of(static_cast<const Stored*>(p.x)[offset_of(p.rows, row, 1) + j * p.step[1]]);
    long long low = 0, high = p.n;  // all before low are counted, none from high on
    while (low < high) {
      const long long mid = (low + high) / 2;
      const Value s = value_of(sorted[mid * p.step[0]]);
      const bool is_counted = p.is_right ? !is_less(v, s) : is_less(s, v);
      (is_counted ? low : high) = is_counted ? mid + 1 : mid;
    }
    p.y[offset_of(p.rows, row, 2) + j * p.step[2]] = static_cast<int>(low);
  }
}
