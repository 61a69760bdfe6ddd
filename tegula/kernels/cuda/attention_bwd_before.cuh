// The kernels that run before a Hopper backward: delta, lse for exp2, zeroes where dQ will be
// summed; and the gradient of sinks, which needs no more than these.
#pragma once

#include "tegula/kernels/cuda/attention_exact.cuh"

namespace tegula::cuda {

constexpr int kTile = 64;  // queries or keys of a passing tile; rows of a warpgroup

// Tile `slot` of a head's query rows: rows [begin, end), at most 64.
__device__ inline Range rows_of_slot(const AttentionBwdParams& p, int slot) {
  Range r{slot * kTile, p.seqlen_q};
  if constexpr (kIsPacked) {
    const int part = part_of_tile<kTile>(p.f.cu_seqlens_q, p.f.n_sequences, p.seqlen_q, slot, r.lo);
    r.hi = sequence_of_part(p.f, part, p.seqlen_q, p.seqlen_k).q_end;
  }
  r.hi = max(r.lo, min(r.hi, r.lo + kTile));
  return r;
}

__device__ inline bool sees_keys(const AttentionBwdParams& p, int batch, int head, int row) {
  const Sequence s = sequence_of_row(p.f, true, row, p.seqlen_q, p.seqlen_k);
  const Range keys =
      AttentionScore(p.f, s, batch, head, p.n_heads_q, p.seqlen_q, p.seqlen_k, p.scale).keys(row);
  return keys.hi > keys.lo;
}

// A row of o and of its gradient, of which a lane has some columns: the lanes of half a warp where
// they are enough.
constexpr int kRowLanes = kIsF32 || TEGULA_HEAD_DIM > 64 ? 32 : 16;
constexpr int kLaneColumns = kIsF32 ? 1 : 4;  // of a step
constexpr int kPartSteps =
    (TEGULA_HEAD_DIM + kRowLanes * kLaneColumns - 1) / (kRowLanes * kLaneColumns);

#if TEGULA_F32
using RowStep = float;
__device__ inline float row_step(const float* a, int at, int n) { return at < n ? a[at] : 0; }
__device__ inline float dot_step(float a, float b, float sum) { return __fmaf_rn(a, b, sum); }
#else
using RowStep = uint2;
__device__ inline uint2 row_step(const u16* a, int at, int n) {
  if (at + 4 <= n) return *reinterpret_cast<const uint2*>(a + at);
  u32 x[4] = {};
  for (int i = 0; i < 3; ++i)
    if (at + i < n) x[i] = a[at + i];
  return {x[0] | x[1] << 16, x[2] | x[3] << 16};
}
__device__ inline float dot2(u32 a, u32 b) {
  return __fmaf_rn(element_to_float(u16(a)), element_to_float(u16(b)),
                   element_to_float(u16(a >> 16)) * element_to_float(u16(b >> 16)));
}
__device__ inline float dot_step(uint2 a, uint2 b, float sum) {
  return sum + (dot2(a.x, b.x) + dot2(a.y, b.y));
}
#endif

// Σ a · b over the columns that this lane of a whole warp takes of `n`.
template <class T>
__device__ inline float lane_dot(const T* a, const T* b, int n) {
  float sum = 0;
#pragma unroll 1  // once for most; and it is compiled into every kernel several times
  for (int at = kLaneColumns * int(threadIdx.x % 32); at < n; at += kLaneColumns * 32)
    sum = dot_step(row_step(a, at, n), row_step(b, at, n), sum);
  return sum;
}

struct RowPart {
  RowStep o[kPartSteps] = {}, d_o[kPartSteps] = {};
  float lse = 0, d_lse = 0;
  __device__ void load(const AttentionBwdParams& p, int batch, int head, int row, int lane) {
    const auto* of = row_of<Element>(p.o, batch, row, head);
    const auto* d_of = row_of<Element>(p.d_o, batch, row, head);
#pragma unroll
    for (int s = 0; s < kPartSteps; ++s) {
      const int at = (s * kRowLanes + lane) * kLaneColumns;
      o[s] = row_step(of, at, p.head_dim), d_o[s] = row_step(d_of, at, p.head_dim);
    }
    const long long at = static_cast<long long>(blockIdx.y) * p.seqlen_q + row;
    lse = p.lse[at];
    if (p.d_lse != nullptr) d_lse = p.d_lse[at];
  }
  // delta = Σ o · d_o - d_lse.
  __device__ float delta() const {
    float sum = 0;
#pragma unroll
    for (int s = 0; s < kPartSteps; ++s) sum = dot_step(o[s], d_o[s], sum);
#pragma unroll
    for (int step = kRowLanes / 2; step > 0; step /= 2)
      sum += __shfl_xor_sync(0xffffffffu, sum, step);
    return sum - d_lse;
  }
};

// Grid (n_tiles_m, b · hq) of 256 threads: a warp takes 8 rows of the tile, and asks for several
// of them before it needs the first.
extern "C" __global__ void __launch_bounds__(256) attention_bwd_before(const AttentionBwdParams p) {
  constexpr int kWarps = 8, kRows = kWarps * 32 / kRowLanes;  // of the block at a time
  constexpr int kTurns = kTile / kRows, kAtOnce = kPartSteps > 2 ? 1 : kPartSteps > 1 ? 2 : 4;
  __shared__ float parts[kWarps * 32 / kRowLanes];
  const int lane = threadIdx.x % kRowLanes, group = threadIdx.x / kRowLanes;
  const int batch = blockIdx.y / p.n_heads_q, head = blockIdx.y % p.n_heads_q;
  const long long tile = static_cast<long long>(blockIdx.y) * gridDim.x + blockIdx.x;
  const Range rows = rows_of_slot(p, blockIdx.x);
  if (tile == 0 && threadIdx.x == 0) *p.leaked = 0, *p.ticket = 0;
  if (int(threadIdx.x) < p.orders_of_tile) p.order[tile * p.orders_of_tile + threadIdx.x] = 0;
  float of_sink = 0;
  for (int turn = 0; turn < kTurns; turn += kAtOnce) {
    RowPart part[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int row = rows.lo + (turn + u) * kRows + group;
      if (row < rows.hi) part[u].load(p, batch, head, row, lane);
    }
    // In order by tile, the first to add writes instead.
    if (turn == 0 && p.dq_sum != nullptr && p.orders_of_tile != 1) {
      constexpr int kQuads = kTile * TEGULA_HEAD_DIM / 4;
      float4* zero = reinterpret_cast<float4*>(p.dq_sum) + tile * kQuads;
      for (int i = threadIdx.x; i < kQuads; i += 256) zero[i] = make_float4(0, 0, 0, 0);
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int r = (turn + u) * kRows + group, row = rows.lo + r;
      const float sum = part[u].delta();
      float delta = 0, lse2 = -kNegativeInfinity;
      if (row < rows.hi) {
        const float lse = part[u].lse;
        if (p.orders_of_tile == 1 && !sees_keys(p, batch, head, row)) {  // nobody adds to it
          Element* dq = row_of(p.dq, batch, row, head);
          for (int c = lane; c < p.head_dim; c += kRowLanes) dq[c] = round_to_element(0.f);
        }
        if (lse != kNegativeInfinity) {
          if (kCounts && lane == 0 && sees_keys(p, batch, head, row))
            count_flops(2 * p.head_dim + (p.d_lse != nullptr));
          lse2 = kIsF32 ? lse : lse * kLog2e;
          delta = sum;
          if constexpr (kHasSinks) of_sink -= exp2_approx((p.f.sinks[head] - lse) * kLog2e) * delta;
        }
      }
      if (lane == 0) p.delta[tile * kTile + r] = delta, p.lse2[tile * kTile + r] = lse2;
    }
  }
  if constexpr (kHasSinks) {
    if (lane == 0) parts[group] = of_sink;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int i = 1; i < kRows; ++i) of_sink += parts[i];
      p.sink_parts[tile] = of_sink;
    }
  }
}

#if TEGULA_SINKS
// Grid hq of 32 threads.
extern "C" __global__ void attention_bwd_sinks(const AttentionBwdParams p) {
  float sum = 0;
  for (int b = 0; b < p.batch; ++b) {
    const float* parts =
        p.sink_parts + (static_cast<long long>(b) * p.n_heads_q + blockIdx.x) * p.n_tiles_m;
    for (int i = threadIdx.x; i < p.n_tiles_m; i += 32) sum += parts[i];
  }
  sum = warp_sum(sum);
  if (threadIdx.x == 0) p.d_sinks[blockIdx.x] = sum;
}
#endif

}  // namespace tegula::cuda
