// b as [k, n], of matvec.cu: a block has kColumns columns of c; group g of its threads takes k = g,
// g + kGroups, …, and the groups are joined by a tree. Columns: 16, 32 or 64.
#pragma once

#include "tegula/kernels/cuda/matvec.cuh"

namespace tegula::cuda {

// A thread has 4 columns of its group's k: narrow enough that few columns are many warps.
constexpr int kColumns = TEGULA_COLUMNS, kOwn = 4, kAcross = kColumns / kOwn;
constexpr int kGroups = 4 * kVector, kThreads = kGroups * kAcross;
// A group has k / kGroups loads one after another: so many of them are on their way at once, of a
// round. Narrow blocks are alone on their multiprocessor and need more.
constexpr int kAhead = kShards > 1 ? 4 : kColumns == 64 ? 8 : kColumns == 32 || kM > 8 ? 16 : 24;
constexpr int kRound = kAhead * kGroups;
// Rows of a lie as f32 in fours, and one or two are left over, beside each other at every k.
constexpr int kFours = (kM + 1) / 4, kLeft = kM % 4 == 3 ? 0 : kM % 4;
constexpr int kPerK = 4 * kFours + kLeft, kMostFloats = kIsAfter ? kFloatsAfter : 10240;
constexpr int kChunk = kRound * (kMostFloats / (kRound * kPerK));  // of k, in shared memory
// Rows that are joined at once: there is a thread for each sum, and room for what it joins.
constexpr int kMostAtOnce = kColumns == 64 || kGroups == 16 ? 4 : 8;
constexpr int kJoins = (kM + kMostAtOnce - 1) / kMostAtOnce, kAtOnce = (kM + kJoins - 1) / kJoins;
constexpr int kSums = kAtOnce * kGroups * kColumns;

struct Own {
  u32 words[kOwn * sizeof(In) / 4];
  __device__ __forceinline__ void load(const In* from) {
#if TEGULA_IN16
    const uint2 x = load_streamed_8(from);
    words[0] = x.x, words[1] = x.y;
#else
    const uint4 x = load_streamed(from);
    words[0] = x.x, words[1] = x.y, words[2] = x.z, words[3] = x.w;
#endif
  }
  __device__ __forceinline__ float operator[](int i) const {
#if TEGULA_IN16
    return element_to_float(static_cast<u16>(words[i / 2] >> 16 * (i % 2)));
#else
    return __uint_as_float(words[i]);
#endif
  }
};

// sums[g][n], g + 16 added to g, then g + 8, …: of one column n.
__device__ __forceinline__ float sum_of_groups(const float* sums, int n) {
  float of[kGroups / 2];
#pragma unroll
  for (int g = 0; g < kGroups / 2; ++g)
    of[g] = sums[g * kColumns + n] + sums[(g + kGroups / 2) * kColumns + n];
#pragma unroll
  for (int half = kGroups / 4; half > 0; half /= 2)
#pragma unroll
    for (int g = 0; g < kGroups / 4; ++g)
      if (g < half) of[g] += of[g + half];
  return of[0];
}

// a[first …][k0 … end), of a chunk: [four][k][4], then [k][left].
__device__ __forceinline__ void put_rows(const MatvecParams& p, const In* a, int first, int k0,
                                         int end, float* rows) {
  constexpr int kTogether = kM < 16 ? 16 / kM : 1;  // since each load takes as long as all
  const int n = min(kChunk, end - k0);
  for (int i0 = 2 * threadIdx.x; i0 < n; i0 += 2 * kThreads * kTogether) {
    float x[kTogether][2][4 * kFours + 4] = {};
#pragma unroll
    for (int t = 0; t < kTogether; ++t) {
      const int i = i0 + 2 * kThreads * t;
      if (i >= n) continue;
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        const In* from = row_of_a(p, a, first + m) + k0 + i;
#if TEGULA_IN16
        const u32 pair = *reinterpret_cast<const u32*>(from);
        x[t][0][m] = element_to_float(static_cast<u16>(pair));
        x[t][1][m] = element_to_float(static_cast<u16>(pair >> 16));
#else
        x[t][0][m] = from[0], x[t][1][m] = from[1];
#endif
      }
    }
#pragma unroll
    for (int t = 0; t < kTogether; ++t) {
      const int i = i0 + 2 * kThreads * t;
      if (i >= n) continue;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float* const of = x[t][j];
#pragma unroll
        for (int f = 0; f < kFours; ++f)
          reinterpret_cast<float4*>(rows)[f * kChunk + i + j] = {of[4 * f], of[4 * f + 1],
                                                                 of[4 * f + 2], of[4 * f + 3]};
#pragma unroll
        for (int l = 0; l < kLeft; ++l)
          rows[4 * kFours * kChunk + (i + j) * kLeft + l] = of[4 * kFours + l];
      }
    }
  }
}

// Blocks: ⌈n / kColumns⌉ for each kM rows.
template <class Begin>
__device__ __forceinline__ void run(const MatvecParams& p, int block, Begin begin) {
  // Rows of a; then sums.
  __shared__ float4 memory[(kChunk * kPerK > kSums ? kChunk * kPerK : kSums) / 4];
  float* const rows = reinterpret_cast<float*>(memory);
  const int across = threadIdx.x % kAcross, group = threadIdx.x / kAcross;
  const int n_columns = (p.n + kColumns - 1) / kColumns;
  const int n0 = block % n_columns * kColumns, n = n0 + across * kOwn;
  const int first = block / n_columns * kM;
  const int shard_k = p.k / kShards;
  // Columns past the last are the last, and not written.
  const In* const b = static_cast<const In*>(p.b) + min(n, p.n - kOwn);
  const int m_joined = threadIdx.x / kColumns, n_joined = threadIdx.x % kColumns;
  const In* a = nullptr;
  float total[kJoins][kShards];
#pragma unroll
  for (int shard = 0; shard < kShards; ++shard) {
    float sum[kM][kOwn] = {};
    int n_k = 0;  // of the sums
    const int end = (shard + 1) * shard_k;
    int k0 = shard * shard_k, chunk = k0 - kChunk;
    Own y[kAhead] = {};
    const auto load = [&](int s, int k) {
      if (k < end) y[s].load(b + k * p.ldb);
    };
    const auto begin_round = [&] {
      if (k0 < chunk + kChunk) return;
      chunk = k0;
      __syncthreads();
      put_rows(p, a, first, k0, end, rows);
      __syncthreads();
    };
    const auto add = [&](int s, const Own& w) {
      const int at = k0 - chunk + s * kGroups + group;
      float x[kM];
#pragma unroll
      for (int f = 0; f < kFours; ++f) {
        const float4 four = memory[f * kChunk + at];
        const float of[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (4 * f + i < kM) x[4 * f + i] = of[i];
      }
#pragma unroll
      for (int l = 0; l < kLeft; ++l)
        x[4 * kFours + l] = rows[4 * kFours * kChunk + at * kLeft + l];
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const float of_b = w[i];
#pragma unroll
        for (int m = 0; m < kM; ++m) sum[m][i] = __fmaf_rn(x[m], of_b, sum[m][i]);
      }
      n_k += kCounts;
    };
#pragma unroll
    for (int s = 0; s < kAhead; ++s) load(s, k0 + s * kGroups + group);
    if (shard == 0) a = begin();
    // A round never ends early: if it could, the compiler would move what is on its way to other
    // registers, and so wait for it, at every step.
    for (; k0 + kRound <= end; k0 += kRound) {
      begin_round();
#pragma unroll
      for (int s = 0; s < kAhead; ++s) {
        add(s, y[s]);
        load(s, k0 + kRound + s * kGroups + group);
      }
    }
    if (k0 < end) {
      begin_round();
#pragma unroll
      for (int s = 0; s < kAhead; ++s)
        if (k0 + s * kGroups + group < end) add(s, y[s]);
    }
    if (n < p.n) count_flops(2ULL * n_k * min(kM, p.m - first) * min(kOwn, p.n - n));
#pragma unroll
    for (int join = 0; join < kJoins; ++join) {
      __syncthreads();
#pragma unroll
      for (int m = 0; m < kAtOnce; ++m)
        if (const int row = join * kAtOnce + m; row < kM)
          memory[((m * kGroups + group) * kColumns + across * kOwn) / 4] = {
              sum[row][0], sum[row][1], sum[row][2], sum[row][3]};
      __syncthreads();
      total[join][shard] = m_joined < kAtOnce && join * kAtOnce + m_joined < kM
                               ? sum_of_groups(rows + m_joined * kGroups * kColumns, n_joined)
                               : 0.f;
    }
  }
#pragma unroll
  for (int join = 0; join < kJoins; ++join) {
    const int row = join * kAtOnce + m_joined, m = first + row;
    if (m_joined < kAtOnce && row < kM && m < p.m && n0 + n_joined < p.n)
      store(p, m, n0 + n_joined, sum_of_neighbours(total[join]));
  }
}

}  // namespace tegula::cuda
