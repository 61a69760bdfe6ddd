// O = softmax(score(Q Kᵀ)) V for bf16 or f16 on Hopper: the top rung of the attention ladder.
// docs/kernels/attention_sm90.md says what bounds it and what each part gave.
//
//   q [b, sq, hq, d], k and v [b, sk, hk, d], o like q: bf16, any strides the copy engine takes
//   (of e4m3: o bf16; v comes as attention_f8_transpose leaves it)
//   lse [b, hq, sq]: f32, ln Σ exp(scale · q k); -inf for a row without keys, whose O is 0
//
// attention_score.cuh says which keys a query sees and what a score is. f32 scores and sums;
// weights rounded to 16 bits before their product with V. The same bits in every run: nothing is
// added atomically, and a row meets its keys from first to last in tiles of kTileN.
//
// A block has one warpgroup that only asks the copy engine for tiles, and kConsumers warpgroups
// that own 64 query rows each and keep their scores, weights and output in registers. Blocks stay
// for the whole launch and draw tiles of work, longest first, from one counter.
//
// Sources: FlashAttention-3 (Shah et al. 2024), §3.1 and §3.2; rescaling only when it matters:
// FlashAttention-4 (2025).
//
// Variant, by -D:
//   TEGULA_HEAD_DIM 64 | 96 | 128 | 192 | 256; of tensors with fewer columns the rest reads as 0
//   TEGULA_F8 0 | 1: q, k and v are e4m3, d is a multiple of 16; then the rows' code is
//     attention_f8_sm90.cuh
//   TEGULA_F16 0 | 1;  TEGULA_ODD 0 | 1: the tensors' head_dim is no multiple of 8
//   masks and score functions: attention_score.cuh
//   TEGULA_TILE_N            keys per tile, a multiple of 16
//   TEGULA_CONSUMERS 2 | 3
//   TEGULA_STAGES            K tiles, and V tiles, in shared memory
//   TEGULA_PING_PONG 0 | 1   consumers take turns at the tensor cores
//   TEGULA_Q_REGISTERS 0 | 1 Q as the A operand from registers, not from shared memory
//   TEGULA_LAZY_LOG2         how far (in powers of 2) a row's maximum may grow before O is rescaled
#include "tegula/kernels/cuda/attention_f8_sm90.cuh"
#include "tegula/kernels/cuda/attention_f8_transpose.cuh"
#include "tegula/kernels/cuda/attention_sm90.cuh"

#if !TEGULA_F8
namespace tegula::cuda {

// Where the rows' maximum is looked for in every tile: of modified scores because the assembler
// would wait for each product otherwise; wide heads gain nothing by leaving it out.
constexpr bool kLooksFirst = kModifies || kD > 128;

// A warpgroup leaves out tiles of keys that none of its rows sees. (Where tiles are chained, they
// are no longer than what that could leave out; packed wide heads have no registers for it.)
constexpr bool kSkips = !kChains && !(kD > 128 && kIsPacked);

struct Consumer : TileConsumer {
  u32 weights[kScores / 2];  // [64 rows][kTileN], the A operand of the product with V

  // o[64][kD] += weights[64][kTileN] · V[kTileN][kD]
  __device__ void issue_output() {
    const SmemOperand b(smem_address(s.v) + v_ring.slot * kVBytes, kTileN * kRowBytes,
                        8 * kRowBytes);
    fence_registers(o);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kTileN / kDepth; ++i)
      Wgmma<kD>::template rs<true>(o, weights + 4 * i, b.at(i * 16 * kRowBytes), true);
    wgmma_commit();
  }

  // The scores of the next K tile and, behind them, the product with the present V tile; returns
  // when the scores are there.
  __device__ void issue_both(float (&scores)[kScores]) {
    barrier_wait(s.k_full + k_ring.slot, k_ring.parity);
    take_turn();
    issue_scores(scores);
    barrier_wait(s.v_full + v_ring.slot, v_ring.parity);
    issue_output();
    pass_turn();
    wgmma_wait<1>();
    fence_registers(scores);
    release(s.k_free + k_ring.slot);
    k_ring.advance();
  }

  __device__ void finish_output() {
    wgmma_wait<0>();
    fence_registers(o);
    release(s.v_free + v_ring.slot);
    v_ring.advance();
  }

  // Scores to the weights of the next product, once the one before (if any) has read its own.
  template <bool kIsFirst, bool kIsAfterProduct = true>
  __device__ void make_weights(float (&scores)[kScores], const Tile& t, int row, int block) {
    count(t, row, block);
    if constexpr (!kLooksFirst) {
      if (kIsAfterProduct) finish_output();
      weigh<kIsFirst>(scores, weights);
      if constexpr (kHasDropout)
        drop(t, row, block, [&](int e) { weights[e / 2] &= e % 2 == 0 ? 0xffff0000 : 0xffff; });
      return;
    }
    softmax(scores, t);
    if (kIsAfterProduct) finish_output();
    if constexpr (kHasDropout) drop(t, row, block, [&](int e) { scores[e] = 0.f; });
#pragma unroll
    for (int i = 0; i < kScores / 2; ++i)
      weights[i] = pack_element(scores[2 * i], scores[2 * i + 1]);
  }

  __device__ void rescale_output() {
    if (rescale) {
#pragma unroll
      for (int i = 0; i < kOut; ++i) o[i] *= grow[(i / 2) % 2];
    }
  }

  // K tile `block` while the product with the V of tile block + 1 is outstanding.
  template <bool kMasked>
  __device__ void step(const Tile& t, int row, int block) {
    float scores[kScores];  // [64][kTileN]
    issue_both(scores);
    if constexpr (kMasked) score(scores, t, row, block);
    make_weights<false>(scores, t, row, block);
    rescale_output();
  }

  __device__ void first_step(const Tile& t, int row) {
    float scores[kScores];
    barrier_wait(s.k_full + k_ring.slot, k_ring.parity);
    if (kSkips && from > 0) take_turn();
    issue_scores(scores);
    if (kSkips && from > 0) pass_turn();
    wgmma_wait<0>();
    fence_registers(scores);
    release(s.k_free + k_ring.slot);
    k_ring.advance();
    if (from < begin || from >= whole) score(scores, t, row, from);
    make_weights<true, false>(scores, t, row, from);
  }

  // Tiles of keys that no row of this warpgroup sees. Of each but a tile's first there is a turn
  // at the tensor cores, as of those that are seen.
  __device__ void skip(int block, int end, bool has_turn) {
    for (; block < end; ++block, has_turn = true) {
      if (has_turn) take_turn(), pass_turn();
      barrier_wait(s.k_full + k_ring.slot, k_ring.parity);
      release(s.k_free + k_ring.slot);
      k_ring.advance();
      barrier_wait(s.v_full + v_ring.slot, v_ring.parity);
      release(s.v_free + v_ring.slot);
      v_ring.advance();
    }
  }

  // The first scores of the next tile while the last product of this one runs, and this one's end:
  // without it the tensor cores would wait for the exponentials at each tile's beginning.
  __device__ void step_across(const Tile& t, const Tile& next) {
    const int row = row_of_tile(next);
    float scores[kScores], top_before[2], sum_before[2];
    take_q();
    find_edges(next, row);
    issue_both(scores);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top_before[r] = top[r], sum_before[r] = sum[r];
      top[r] = kNegativeInfinity, sum[r] = 0.f;
    }
    if (begin > 0 || whole == 0) score(scores, next, row, 0);
    make_weights<true>(scores, next, row, 0);
#pragma unroll
    for (int r = 0; r < 2; ++r) swap(top[r], top_before[r]), swap(sum[r], sum_before[r]);
    write(t, row_of_tile(t));
#pragma unroll
    for (int r = 0; r < 2; ++r) top[r] = top_before[r], sum[r] = sum_before[r];
    clear_output();
  }

  __device__ static void swap(float& a, float& b) {
    const float c = a;
    a = b, b = c;
  }

  // (in_turn: of the tile behind, which this warpgroup skips.)
  __device__ void last_step(bool in_turn = false) {
    barrier_wait(s.v_full + v_ring.slot, v_ring.parity);
    if (in_turn) take_turn();
    issue_output();
    if (in_turn) pass_turn();
    finish_output();
  }

  // All but the first scores of a tile, and all but the last product with V.
  __device__ void middle_steps(const Tile& t, int row) {
    const int end = kSkips ? to : t.n_blocks;
    int block = kSkips ? from + 1 : 1;
    if constexpr (kHasStart && !kAlwaysMasks)
      for (; block < min(begin, end); ++block) step<true>(t, row, block);
    if constexpr (!kAlwaysMasks)
      for (; block < min(whole, end); ++block) step<false>(t, row, block);
    for (; block < end; ++block) step<true>(t, row, block);
    if (kOwnO && !kQInRegisters) release(s.q_free + q_slot());
  }

  __device__ void begin_tile(const Tile& t, int row) {
    prepare(t, row);
    if (t.n_blocks > 0)
      first_step(t, row);
    else if (kOwnO && !kQInRegisters)
      release(s.q_free + q_slot());
  }

  __device__ void end_tile(const Tile& t, int row) {
    if (t.n_blocks > 0) last_step();
    write(t, row);
  }

  __device__ void run_chained() {
    Tile t = take_tile();
    begin_tile(t, row_of_tile(t));
    while (true) {
      if (t.n_blocks > 0) middle_steps(t, row_of_tile(t));
      const Tile next = take_tile();
      if (next.is_end()) break;
      if (t.n_blocks > 0 && next.n_blocks > 0) {
        step_across(t, next);
      } else {
        end_tile(t, row_of_tile(t));
        begin_tile(next, row_of_tile(next));
      }
      t = next;
    }
    end_tile(t, row_of_tile(t));
  }

  __device__ void run_in_turn() {
    for (Tile t = take_tile(); !t.is_end(); t = take_tile()) {
      const int row = row_of_tile(t);
      if constexpr (!kSkips) {
        begin_tile(t, row);
        if (t.n_blocks > 0) middle_steps(t, row);
        end_tile(t, row);
        continue;
      }
      prepare(t, row);
      skip(0, from, false);
      if (from < to) {
        first_step(t, row);
        middle_steps(t, row);
        last_step(to < t.n_blocks);
        skip(to, t.n_blocks, false);
      } else {
        if (!kQInRegisters && (kOwnO || !is_real(t))) release(s.q_free + q_slot());
        skip(from, t.n_blocks, from > 0);
      }
      if (is_real(t)) write(t, row);
    }
  }

  __device__ void run() {
    take_first_turn();
    if constexpr (kChains)
      run_chained();
    else
      run_in_turn();
    if (warp == 0 && lane == 0) tma_store_wait_read();
  }
};

}  // namespace tegula::cuda
#endif

using namespace tegula::cuda;

// One block per multiprocessor, of kThreads threads.
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attention_sm90(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                   const __grid_constant__ TensorMap v, const __grid_constant__ TensorMap o,
                   const AttentionParams p) {
  extern __shared__ char smem[];
  const Shared s(smem);
  const u32 warp = uniform(threadIdx.x / 32);
  start_grid_after();
  if (threadIdx.x == 0) {
    prefetch_map(&q), prefetch_map(&k), prefetch_map(&v), prefetch_map(&o);
    constexpr u32 kWarps = 4 * kConsumers;
    for (int i = 0; i < kQStages; ++i)
      barrier_init(s.q_full + i, 1), barrier_init(s.q_free + i, kWarps);
    for (int i = 0; i < kStages; ++i) {
      barrier_init(s.k_full + i, 1), barrier_init(s.k_free + i, kWarps);
      barrier_init(s.v_full + i, 1), barrier_init(s.v_free + i, kWarps);
    }
    s.next.init(kWarps + 1);
    barrier_init_fence();
  }
  __syncthreads();
  wait_for_grid_before();

  if (warp < 4) {
    give_registers<kProducerRegisters>();
    if (warp == 0) {
      Producer producer{p, s, &q, &k, &v};
      if (elect_one()) producer.run();
    } else if (threadIdx.x == 32) {
      s.next.deal(p);
    }
  } else {
    take_registers<kConsumerRegisters>();
    Consumer consumer{{{{p, warp / 4 - 1, threadIdx.x % 32, warp % 4}}, s, &o}};
    consumer.run();
  }
}
