// The rows of e4m3 in the Hopper attention forward (attention_sm90.cu).
// docs/kernels/attention_f8.md says why it looks as it does.
//
// Scores, weights and the product with V come one after the other, and the block's warpgroups fill
// each other's waits: a tile's scores and its product never live at once, so there are registers
// for three warpgroups of 64 rows × 128 columns. The tensor cores sum products of e4m3 with some 14
// bits: each tile's product is a sum of its own, and O takes it in f32.
#pragma once

#include "tegula/kernels/cuda/attention_sm90.cuh"

#if TEGULA_F8
namespace tegula::cuda {

struct Consumer : TileConsumer {
  // Columns of one product with V, of which two are under way at once.
  static constexpr int kPartColumns = kD == 128 ? 32 : 64;
  static constexpr int kParts = kD / kPartColumns;

  u32 weights[kScores / 4];  // [64 rows][kTileN], the A operand of the product with V
  // (V's slot is K's: k_ring stands for both.)

  // part[64][kPartColumns] = weights[64][kTileN] · V[kTileN][columns from `column`]
  __device__ void issue_part(float (&part)[kPartColumns / 2], int column) {
    const SmemOperand b(smem_address(s.v) + k_ring.slot * kVBytes, 16, 8 * kRowBytes);
    fence_registers(part);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kTileN / kDepth; ++i)
      Wgmma<kPartColumns>::template rs<false>(part, weights + 4 * i,
                                              b.at(column * kRowBytes + 32 * i), i > 0);
    wgmma_commit();
  }

  // o = o · grow + weights · V
  __device__ void add_product() {
    float part[kParts > 1 ? 2 : 1][kPartColumns / 2];
    barrier_wait(s.v_full + k_ring.slot, k_ring.parity);
    issue_part(part[0], 0);
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      if (i + 1 < kParts) {
        issue_part(part[(i + 1) % 2], (i + 1) * kPartColumns);
        wgmma_wait<1>();
      } else {
        wgmma_wait<0>();
        release(s.v_free + k_ring.slot);
      }
      fence_registers(part[i % 2]);
#pragma unroll
      for (int e = 0; e < kPartColumns / 2; ++e) {
        float& x = o[i * (kPartColumns / 2) + e];
        x = __fmaf_rn(x, grow[(e / 2) % 2], part[i % 2][e]);
      }
    }
    k_ring.advance();
  }

  template <bool kMasked>
  __device__ void step(const Tile& t, int row, int block) {
    float scores[kScores];  // [64][kTileN]
    barrier_wait(s.k_full + k_ring.slot, k_ring.parity);
    take_turn();
    issue_scores(scores);
    pass_turn();
    wgmma_wait<0>();
    fence_registers(scores);
    release(s.k_free + k_ring.slot);
    if constexpr (kMasked) score(scores, t, row, block);
    count(t, row, block);
    softmax(scores, t);
    if constexpr (kHasDropout) drop(t, row, block, [&](int e) { scores[e] = 0.f; });
#pragma unroll
    for (int i = 0; i < kScores / 4; ++i) {
      const float* x = scores + i / 2 * 8 + i % 2 * 2;
      weights[i] = pack_e4m3(x[0], x[1], x[4], x[5]);
    }
    add_product();
  }

  // A tile of keys that no row of this warpgroup sees.
  __device__ void skip() {
    barrier_wait(s.k_full + k_ring.slot, k_ring.parity);
    take_turn();
    pass_turn();
    release(s.k_free + k_ring.slot);
    barrier_wait(s.v_full + k_ring.slot, k_ring.parity);
    release(s.v_free + k_ring.slot);
    k_ring.advance();
  }

  __device__ void run() {
    take_first_turn();
    for (Tile t = take_tile(); !t.is_end(); t = take_tile()) {
      const int row = row_of_tile(t);
      prepare(t, row);
      int block = 0;
      if constexpr (kHasRanges)
        for (; block < from; ++block) skip();
      if constexpr (kHasStart && !kAlwaysMasks)
        for (; block < min(begin, to); ++block) step<true>(t, row, block);
      if constexpr (!kAlwaysMasks)
        for (; block < min(whole, to); ++block) step<false>(t, row, block);
      for (; block < to; ++block) step<true>(t, row, block);
      for (; block < t.n_blocks; ++block) skip();
      if (!kQInRegisters) release(s.q_free + q_slot());
      if (is_real(t)) write(t, row);
    }
    if (warp == 0 && lane == 0) tma_store_wait_read();
  }
};

}  // namespace tegula::cuda
#endif
