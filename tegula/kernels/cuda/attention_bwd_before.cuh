// What runs before a Hopper backward: delta, lse for exp2, zeroes where dQ will be summed; and the
// gradient of sinks, which needs no more than these.
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

#if TEGULA_F32
// Σ a · b over the columns that this lane takes of `n`.
__device__ inline float lane_dot(const float* a, const float* b, int n) {
  float sum = 0;
  for (int c = int(threadIdx.x % 32); c < n; c += 32) sum = __fmaf_rn(a[c], b[c], sum);
  return sum;
}
#else
// Two elements of each.
__device__ inline float dot2(u32 a, u32 b) {
  return __fmaf_rn(element_to_float(u16(a)), element_to_float(u16(b)),
                   element_to_float(u16(a >> 16)) * element_to_float(u16(b >> 16)));
}

// Σ a · b over the columns that this lane takes, four at a time, of `n`.
__device__ inline float lane_dot(const u16* a, const u16* b, int n) {
  float sum = 0;
#pragma unroll 1  // once for most; and it is compiled into every kernel several times
  for (int at = 4 * int(threadIdx.x % 32); at < n; at += 128) {
    if (at + 4 <= n) {
      const uint2 x = *reinterpret_cast<const uint2*>(a + at);
      const uint2 y = *reinterpret_cast<const uint2*>(b + at);
      sum += dot2(x.x, y.x) + dot2(x.y, y.y);
    } else {
#pragma unroll 1
      for (int c = at; c < n; ++c)
        sum = __fmaf_rn(element_to_float(a[c]), element_to_float(b[c]), sum);
    }
  }
  return sum;
}
#endif

// Grid (n_tiles_m, b · hq) of 256 threads: a warp takes 8 rows of the tile, one after the other.
extern "C" __global__ void attention_bwd_before(const AttentionBwdParams p) {
  __shared__ float parts[8];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int batch = blockIdx.y / p.n_heads_q, head = blockIdx.y % p.n_heads_q;
  const long long tile = static_cast<long long>(blockIdx.y) * gridDim.x + blockIdx.x;
  if (tile == 0 && threadIdx.x == 0) *p.leaked = 0, *p.ticket = 0;
  if (int(threadIdx.x) < p.orders_of_tile) p.order[tile * p.orders_of_tile + threadIdx.x] = 0;
  // In order by tile, the first to add writes instead.
  if (p.dq_sum != nullptr && p.orders_of_tile != 1) {
    constexpr int kQuads = kTile * TEGULA_HEAD_DIM / 4;
    float4* zero = reinterpret_cast<float4*>(p.dq_sum) + tile * kQuads;
    for (int i = threadIdx.x; i < kQuads; i += 256) zero[i] = make_float4(0, 0, 0, 0);
  }
  const Range rows = rows_of_slot(p, blockIdx.x);
  float of_sink = 0;
  for (int r = warp; r < kTile; r += 8) {
    const int row = rows.lo + r;
    float delta = 0, lse2 = -kNegativeInfinity;
    if (row < rows.hi) {
      const long long at = static_cast<long long>(blockIdx.y) * p.seqlen_q + row;
      const float lse = p.lse[at];
      if (p.orders_of_tile == 1 && !sees_keys(p, batch, head, row)) {  // nobody adds to it
        Element* dq = row_of(p.dq, batch, row, head);
        for (int c = lane; c < p.head_dim; c += 32) dq[c] = round_to_element(0.f);
      }
      if (lse != kNegativeInfinity) {
        if (kCounts && lane == 0 && sees_keys(p, batch, head, row))
          count_flops(2 * p.head_dim + (p.d_lse != nullptr));
        lse2 = kIsF32 ? lse : lse * kLog2e;
        delta = warp_sum(
            lane_dot(row_of(p.o, batch, row, head), row_of(p.d_o, batch, row, head), p.head_dim));
        if (p.d_lse != nullptr) delta -= p.d_lse[at];
        if constexpr (kHasSinks) of_sink -= exp2_approx((p.f.sinks[head] - lse) * kLog2e) * delta;
      }
    }
    if (lane == 0) p.delta[tile * kTile + r] = delta, p.lse2[tile * kTile + r] = lse2;
  }
  if constexpr (kHasSinks) {
    if (lane == 0) parts[warp] = of_sink;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int i = 1; i < 8; ++i) of_sink += parts[i];
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
