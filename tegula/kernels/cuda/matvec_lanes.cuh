// b as [n, k] of f32, of matvec.cu: a warp has kRows columns of c; its lanes walk k side by side,
// 4 elements each, and their sums are joined by a tree.
#pragma once

#include "tegula/kernels/cuda/matvec.cuh"

namespace tegula::cuda {

struct Values {
  float at[4];
  __device__ explicit Values(const uint4& words) {
    const u32 w[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) at[i] = __uint_as_float(w[i]);
  }
};

constexpr int kThreads = 128, kRows = kM > 8 ? 4 : 2;
constexpr int kAhead = kShards > 1 || kM > 8 ? 2 : kM > 2 ? 4 : 8;  // of a round

// Each of the warp's sums over its lanes l: l + 16 added to l, then l + 8, …. At every step half of
// the sums go on in each half of the lanes, and lane l is left with those of number at(i).
template <int kN>
struct OverLanes {
  static constexpr int kLeft = (kN + 31) / 32;
  float of[kLeft];
  static __device__ int at(int i) {
    return 32 * i + static_cast<int>(__brev(threadIdx.x % 32) >> 27);  // may be past the last
  }
  __device__ explicit OverLanes(float (&sums)[kN]) {
    int n = kN;
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      const bool is_upper = (threadIdx.x & step) != 0;
#pragma unroll
      for (int i = 0; i < (n + 1) / 2; ++i) {
        const float even = sums[2 * i], odd = sums[min(2 * i + 1, n - 1)];
        const float kept = is_upper ? odd : even;
        sums[i] = kept + __shfl_xor_sync(0xffffffffu, is_upper ? even : odd, step);
      }
      n = (n + 1) / 2;
    }
#pragma unroll
    for (int i = 0; i < kLeft; ++i) of[i] = sums[i];
  }
};

// Blocks: ⌈n / (kRows · warps)⌉ for each kM rows.
template <class Begin>
__device__ __forceinline__ void run(const MatvecParams& p, int block, Begin begin) {
  constexpr int kWarps = kThreads / 32, kColumns = kRows * kWarps;
  const int n_columns = (p.n + kColumns - 1) / kColumns;
  const int lane = threadIdx.x % 32, warp = block % n_columns * kWarps + threadIdx.x / 32;
  const int n = warp * kRows, first = block / n_columns * kM;
  if (!kIsAfter && n >= p.n) return;
  const In* b[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    b[r] = static_cast<const In*>(p.b) + static_cast<long long>(min(n + r, p.n - 1)) * p.ldb;
  constexpr int kStep = 32 * kVector, kRound = kAhead * kStep;
  const int shard_k = p.k / kShards, own = lane * kVector;
  using Sums = OverLanes<kM * kRows>;
  float total[Sums::kLeft][kShards];
  uint4 y[kAhead][kRows] = {};
  const auto load = [&](int s, int k, int end) {
    if (k >= end) return;
#pragma unroll
    for (int r = 0; r < kRows; ++r) y[s][r] = load_streamed(b[r] + k);
  };
#pragma unroll
  for (int s = 0; s < kAhead; ++s) load(s, s * kStep + own, shard_k);
  const In* const a = begin();
  if (kIsAfter && n >= p.n) return;
#pragma unroll
  for (int shard = 0; shard < kShards; ++shard) {
    float sum[kM * kRows] = {};
    int n_k = 0;  // of the sums
    int k0 = shard * shard_k;
    const int end = k0 + shard_k;
    const auto add = [&](int s) {
      n_k += kCounts * kVector;
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        const Values x(
            *reinterpret_cast<const uint4*>(row_of_a(p, a, first + m) + k0 + s * kStep + own));
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const Values w(y[s][r]);
#pragma unroll
          for (int i = 0; i < kVector; ++i)
            sum[m * kRows + r] = __fmaf_rn(x.at[i], w.at[i], sum[m * kRows + r]);
        }
      }
    };
    if (shard > 0) {
#pragma unroll
      for (int s = 0; s < kAhead; ++s) load(s, k0 + s * kStep + own, end);
    }
    // As above, no round ends early.
    for (; k0 + kRound <= end; k0 += kRound) {
#pragma unroll
      for (int s = 0; s < kAhead; ++s) {
        add(s);
        load(s, k0 + kRound + s * kStep + own, end);
      }
    }
#pragma unroll
    for (int s = 0; s < kAhead; ++s)
      if (k0 + s * kStep + own < end) add(s);
    count_flops(2ULL * n_k * min(kM, p.m - first) * min(kRows, p.n - n));
    const Sums sums(sum);
#pragma unroll
    for (int i = 0; i < Sums::kLeft; ++i) total[i][shard] = sums.of[i];
  }
#pragma unroll
  for (int i = 0; i < Sums::kLeft; ++i) {
    const int at = Sums::at(i), m = first + at / kRows, column = n + at % kRows;
    if (at < kM * kRows && m < p.m && column < p.n)
      store(p, m, column, sum_of_neighbours(total[i]));
  }
}

}  // namespace tegula::cuda
