// C = A B in f32 with tiles in shared memory: a block of L × L outputs fetches what it needs once,
// together.
//
//   a [m, k], b [k, n], c [m, n]: f32, row after row
//
// The block walks k in slabs of S: its 256 threads fetch L × S elements of A and S × L of B, and
// each thread adds S outer products of V elements with V. Global reads: 2 N³/L; shared reads:
// 2 N³/V.
//
// Variant, by -D, each on top of the one before:
//   TEGULA_COALESCED 0 | 1       a fetch of a warp reads neighbours: 4 sectors of 32 bytes, not 16
//   TEGULA_CONFLICT_FREE 0 | 1   A lies transposed, and lanes read 16 bytes each beside each other
//   TEGULA_DOUBLE_BUFFERED 0 | 1 the next slab is fetched while this one is used
#include "tegula/kernels/cuda/count.cuh"
#include "tegula/kernels/cuda/matmul_params.h"

namespace tegula::cuda {

constexpr bool kCoalesced = TEGULA_COALESCED;
constexpr bool kConflictFree = TEGULA_CONFLICT_FREE;
constexpr bool kDoubleBuffered = TEGULA_DOUBLE_BUFFERED;

constexpr int kL = 128, kV = 8, kS = 8;
constexpr int kThreads = (kL / kV) * (kL / kV);
constexpr int kFetch = kL * kS / kThreads;  // elements of A, and of B, that a thread fetches
constexpr int kBuffers = kDoubleBuffered ? 2 : 1;
// Transposed A: 8 k × 4 rows of a warp's fetch meet 32 different banks, and 16-byte reads stay
// aligned.
constexpr int kPitch = kL + 4;

struct Slab {
  float a[kConflictFree ? kS * kPitch : kL * kS];  // [kS][kPitch] or [kL][kS]
  float b[kS * kL];                                // [kS][kL]
  __device__ float& a_at(int row, int k) {
    return a[kConflictFree ? k * kPitch + row : row * kS + k];
  }
};

struct Matmul {
  const MatmulRungParams& p;
  int first_row, first_column;
  float next_a[kFetch], next_b[kFetch];
  float sums[kV][kV] = {};

  // The element of a slab that fetch `i` of this thread is.
  static __device__ int element(int i) {
    return kCoalesced ? int(threadIdx.x) + kThreads * i : int(threadIdx.x) * kFetch + i;
  }

  // Rows and columns past the end repeat the last one, and are not written; k past the end is zero.
  __device__ void fetch(int k0) {
#pragma unroll
    for (int i = 0; i < kFetch; ++i) {
      const int e = element(i);
      const int row = min(first_row + e / kS, p.m - 1), ka = k0 + e % kS;
      const int kb = k0 + e / kL, column = min(first_column + e % kL, p.n - 1);
      next_a[i] = ka < p.k ? p.a[unsigned(row) * p.k + ka] : 0.f;  // 32 bits save registers
      next_b[i] = kb < p.k ? p.b[unsigned(kb) * p.n + column] : 0.f;
    }
  }

  __device__ void store(Slab& s) const {
#pragma unroll
    for (int i = 0; i < kFetch; ++i) {
      const int e = element(i);
      s.a_at(e / kS, e % kS) = next_a[i];
      s.b[e] = next_b[i];
    }
  }

  // The thread's output `i` of kV along one side. Conflict-free: fours of neighbours, the lanes'
  // fours side by side. A warp is 4 × 8 threads then, so that either read of it takes 128 bytes or
  // less.
  static __device__ int at(int i, int thread) {
    return kConflictFree ? (i / 4) * (kL / 2) + 4 * thread + i % 4 : kV * thread + i;
  }
  static __device__ int thread_row() {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    return kConflictFree ? (warp / 2) * 4 + lane / 8 : int(threadIdx.x) / (kL / kV);
  }
  static __device__ int thread_column() {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    return kConflictFree ? (warp % 2) * 8 + lane % 8 : int(threadIdx.x) % (kL / kV);
  }

  __device__ void multiply(Slab& s) {
    const int tr = thread_row(), tc = thread_column();
#pragma unroll
    for (int k = 0; k < kS; ++k) {
      float x[kV], y[kV];
      if constexpr (kConflictFree) {
#pragma unroll
        for (int i = 0; i < kV; i += 4) {
          *reinterpret_cast<float4*>(x + i) = *reinterpret_cast<float4*>(&s.a_at(at(i, tr), k));
          *reinterpret_cast<float4*>(y + i) = *reinterpret_cast<float4*>(s.b + k * kL + at(i, tc));
        }
      } else {
#pragma unroll
        for (int i = 0; i < kV; ++i) {
          x[i] = s.a_at(at(i, tr), k);
          y[i] = s.b[k * kL + at(i, tc)];
        }
      }
#pragma unroll
      for (int i = 0; i < kV; ++i)
#pragma unroll
        for (int j = 0; j < kV; ++j) sums[i][j] = __fmaf_rn(x[i], y[j], sums[i][j]);
    }
  }

  // Counts k0 and what follows in its slab.
  __device__ void count(int k0) const {
#if TEGULA_COUNT
    unsigned long long n = 0;
    for (int e = 0; e < kV * kV; ++e)
      n += first_row + at(e / kV, thread_row()) < p.m &&
           first_column + at(e % kV, thread_column()) < p.n;
    count_flops(2 * n * min(kS, p.k - k0));
#endif
  }

  __device__ void run(Slab* slabs) {
    if constexpr (kDoubleBuffered) {
      fetch(0);
      store(slabs[0]);
      __syncthreads();
      for (int k0 = 0, now = 0; k0 < p.k; k0 += kS, now ^= 1) {
        if (k0 + kS < p.k) fetch(k0 + kS);
        multiply(slabs[now]);
        count(k0);
        if (k0 + kS < p.k) store(slabs[now ^ 1]);
        __syncthreads();
      }
    } else {
      for (int k0 = 0; k0 < p.k; k0 += kS) {
        fetch(k0);
        __syncthreads();
        store(slabs[0]);
        __syncthreads();
        multiply(slabs[0]);
        count(k0);
      }
    }
  }

  __device__ void write() const {
#pragma unroll
    for (int i = 0; i < kV; ++i) {
      const int row = first_row + at(i, thread_row());
#pragma unroll
      for (int j = 0; j < kV; ++j) {
        const int column = first_column + at(j, thread_column());
        if (row < p.m && column < p.n) p.c[static_cast<long long>(row) * p.n + column] = sums[i][j];
      }
    }
  }
};

}  // namespace tegula::cuda

using namespace tegula::cuda;

// Grid (⌈n/kL⌉, ⌈m/kL⌉) of kThreads threads.
extern "C" __global__ void __launch_bounds__(kThreads, 2) matmul_v3(const MatmulRungParams p) {
  __shared__ __align__(16) Slab slabs[kBuffers];
  Matmul matmul{p, int(blockIdx.y) * kL, int(blockIdx.x) * kL};
  matmul.run(slabs);
  matmul.write();
}
