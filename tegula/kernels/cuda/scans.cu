// Scans along one dim: the largest element so far, and y_i = a_i·y_(i-1) + b_i.
//
// A block has kLines neighbouring lines and goes along them in tiles of kLength elements, which all
// its threads copy to and from shared memory in whichever direction memory lies.
//
// Variant, by -D: TEGULA_T the elements' type, or TEGULA_BF16 1 or TEGULA_F16 1 of 16 bits;
// TEGULA_SUM the type of a chain; TEGULA_LINES of a block: 32, or 8 or 1 where there are few;
// TEGULA_SCAN 0 | 1: the largest, the recurrence.
#include "tegula/kernels/cuda/elements.cuh"
#include "tegula/kernels/cuda/strided.cuh"

using namespace tegula::cuda;

constexpr int kThreads = 256, kElements = 2048, kEach = kElements / kThreads;
constexpr int kLines = TEGULA_LINES, kLength = kElements / kLines;
constexpr int kPitch = kLength + 1;  // threads beside each other on lines meet other banks

struct Place {
  int line, i;
  __device__ int at() const { return line * kPitch + i; }
};
// Element e of a tile: neighbours lie beside each other, along a line or across lines.
__device__ inline Place place_of(int e, bool is_along) {
  if (is_along) return {e / kLength, e % kLength};
  return {e % kLines, e / kLines};
}

#if TEGULA_SCAN == 0

// The first of two parts of a line and the second as one: the latest among equals; a NaN stays, at
// the latest one. `at` is -1 of no elements.
struct Top {
  Value value;
  int at;
};
__device__ inline Top join(Top first, Top second, bool is_smallest) {
  if (second.at < 0) return first;
  if (first.at < 0) return second;
  const Value a = first.value, b = second.value;
  const bool wins = b != b || (a == a && (is_smallest ? b <= a : b >= a));
  return wins ? second : first;
}

constexpr int kWarps = kThreads / 32;
constexpr int kParts = kLines < kWarps ? kWarps / kLines : 1;  // of a line, a warp each
constexpr int kPart = kLength / kParts;

// Every warp scans parts of lines by shuffles, 32 elements at a time; what came before a part is
// joined as results are written.
extern "C" __global__ void __launch_bounds__(kThreads)
    cummax(const __grid_constant__ LineParams p) {
  begin_early();
  __shared__ Value value[kLines * kPitch];
  __shared__ int index[kLines * kPitch];
  __shared__ Top all_of[kLines][kParts], before[kLines][kParts], carry[kLines];
  __shared__ long long offset[3][kLines];  // of x, of values, of places
  const long long first = static_cast<long long>(blockIdx.x) * kLines;
  const int n_lines = static_cast<int>(min(static_cast<long long>(kLines), p.lines.count - first));
  if (threadIdx.x < 3 * kLines) {
    const int tensor = threadIdx.x / kLines, line = threadIdx.x % kLines;
    if (line < n_lines) offset[tensor][line] = offset_of(p.lines, first + line, tensor);
    if (tensor == 0) carry[line] = {Value(0), -1};
  }
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (long long begin = 0; begin < p.n; begin += kLength) {
    const int length = static_cast<int>(min(static_cast<long long>(kLength), p.n - begin));
    __syncthreads();
    for (int e = threadIdx.x; e < kElements; e += kThreads) {
      const Place s = place_of(e, p.step[0] == 1 || p.step[0] == -1);
      if (s.line < n_lines && s.i < length)
        value[s.at()] = value_of(
            static_cast<const Stored*>(p.x)[offset[0][s.line] + (begin + s.i) * p.step[0]]);
    }
    __syncthreads();
    for (int work = warp; work < kLines * kParts; work += kWarps) {
      const int line = work / kParts, part = work % kParts;
      Top so_far{Value(0), -1};
      if (line < n_lines)
        for (int i = part * kPart; i < (part + 1) * kPart && i < length; i += 32) {
          const int at = line * kPitch + i + lane;
          const bool is_inside = i + lane < length;
          Top top{is_inside ? value[at] : Value(0),
                  is_inside ? static_cast<int>(begin) + i + lane : -1};
          for (int step = 1; step < 32; step *= 2) {
            Top left{__shfl_up_sync(0xffffffffu, top.value, step),
                     __shfl_up_sync(0xffffffffu, top.at, step)};
            if (lane < step) left.at = -1;
            top = join(left, top, p.is_smallest);
          }
          top = join(so_far, top, p.is_smallest);
          if (is_inside) value[at] = top.value, index[at] = top.at;
          so_far = {__shfl_sync(0xffffffffu, top.value, 31), __shfl_sync(0xffffffffu, top.at, 31)};
        }
      if (lane == 0) all_of[line][part] = so_far;
    }
    __syncthreads();
    if (threadIdx.x < n_lines) {
      Top so_far = carry[threadIdx.x];
      for (int part = 0; part < kParts; ++part) {
        before[threadIdx.x][part] = so_far;
        so_far = join(so_far, all_of[threadIdx.x][part], p.is_smallest);
      }
      carry[threadIdx.x] = so_far;
    }
    __syncthreads();
    for (int e = threadIdx.x; e < kElements; e += kThreads) {
      const Place s = place_of(e, p.step[1] == 1 || p.step[1] == -1);
      if (s.line >= n_lines || s.i >= length) continue;
      const Top top =
          join(before[s.line][s.i / kPart], {value[s.at()], index[s.at()]}, p.is_smallest);
      const long long i = begin + s.i;
      static_cast<Stored*>(p.y)[offset[1][s.line] + i * p.step[1]] = stored_of(top.value);
      static_cast<int*>(p.z)[offset[2][s.line] + i * p.step[2]] =
          p.is_reverse ? static_cast<int>(p.n) - 1 - top.at : top.at;
    }
  }
}

#else

__device__ inline float next_of(float a, float y, float b) { return __fmaf_rn(a, y, b); }
__device__ inline double next_of(double a, double y, double b) { return __fma_rn(a, y, b); }
template <class T>
__device__ inline T next_of(T a, T y, T b) {
  return a * y + b;
}

// a is x, b is z. A thread a line makes the chain, whose order is the op's, out of shared memory
// while the others' loads of the next tile are under way.
extern "C" __global__ void __launch_bounds__(kThreads)
    linear_recurrence(const __grid_constant__ LineParams p) {
  begin_early();
  using Sum = TEGULA_SUM;
  __shared__ Sum a[kLines * kPitch], b[kLines * kPitch];
  __shared__ long long offset[3][kLines];
  const long long first = static_cast<long long>(blockIdx.x) * kLines;
  const int n_lines = static_cast<int>(min(static_cast<long long>(kLines), p.lines.count - first));
  if (threadIdx.x < n_lines)
    for (int t = 0; t < 3; ++t) offset[t][threadIdx.x] = offset_of(p.lines, first + threadIdx.x, t);
  __syncthreads();
  Stored next_a[kEach], next_b[kEach];
  const bool is_along[3] = {p.step[0] == 1 || p.step[0] == -1, p.step[1] == 1 || p.step[1] == -1,
                            p.step[2] == 1 || p.step[2] == -1};
  const auto is_inside = [&](Place s, long long begin) {
    return s.line < n_lines && begin + s.i < p.n;
  };
  const auto read = [&](long long begin) {
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const Place s = place_of(k * kThreads + threadIdx.x, is_along[0]);
      const Place t = place_of(k * kThreads + threadIdx.x, is_along[2]);
      next_a[k] = next_b[k] = Stored(0);
      if (is_inside(s, begin))
        next_a[k] = static_cast<const Stored*>(p.x)[offset[0][s.line] + (begin + s.i) * p.step[0]];
      if (is_inside(t, begin))
        next_b[k] = static_cast<const Stored*>(p.z)[offset[2][t.line] + (begin + t.i) * p.step[2]];
    }
  };
  read(0);
  Sum y = 0;
  for (long long begin = 0; begin < p.n; begin += kLength) {
    const int length = static_cast<int>(min(static_cast<long long>(kLength), p.n - begin));
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      a[place_of(k * kThreads + threadIdx.x, is_along[0]).at()] =
          static_cast<Sum>(value_of(next_a[k]));
      b[place_of(k * kThreads + threadIdx.x, is_along[2]).at()] =
          static_cast<Sum>(value_of(next_b[k]));
    }
    __syncthreads();
    if (begin + kLength < p.n) read(begin + kLength);
    if (threadIdx.x < n_lines)
      for (int i = 0; i < length; ++i) {
        const int at = threadIdx.x * kPitch + i;
        // The first is b itself, whatever a is.
        y = begin + i == 0 ? b[at] : next_of(a[at], y, b[at]);
        b[at] = y;
        count_flops(2);
      }
    __syncthreads();
    for (int e = threadIdx.x; e < kElements; e += kThreads) {
      const Place s = place_of(e, is_along[1]);
      if (is_inside(s, begin))
        static_cast<Stored*>(p.y)[offset[1][s.line] + (begin + s.i) * p.step[1]] =
            stored_of(b[s.at()]);
    }
  }
}

#endif
