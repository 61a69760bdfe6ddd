// O = softmax(score(Q Kᵀ)) V for bf16 or f16 by mma.sync, as on Ampere: the third rung of the
// attention ladder, and what GPUs without wgmma get.
//
//   q [b, sq, hq, d], k and v [b, sk, hk, d], o like q, stride 1 over d, other strides multiples of
//   8, aligned to 16 bytes; lse [b, hq, sq] f32, as of attention_sm90.cu
//
// A block owns 128 query rows. Its warps hold scores, weights and output in registers, where the
// weights of a product are what the next one reads: no score reaches shared memory. A warp has 16
// rows of either half (kGroups 2: what it reads of K and V serves both), or of one. K and V take
// turns: while one is multiplied, the other's next tile is copied (cp.async). Tensor cores wait for
// the exponentials of their own warp, not of the block's others.
// Shared reads: 2 · 2 sq sk d / (16 kGroups) elements, of Q sq sk d / kTileN.
//
// Source: FlashAttention-2 (Dao 2023), §3.1 and §3.3.
//
// Variant, by -D: TEGULA_HEAD_DIM 64 | 96 | 128 | 192 | 256; TEGULA_F16 0 | 1; TEGULA_TILE_N;
// TEGULA_GROUPS 1 | 2; TEGULA_LAZY_LOG2; TEGULA_CONSUMERS=2, halves of 64 rows; TEGULA_PAGED 1: K
// and V in pages; masks and score functions: attention_score.cuh.
#include "tegula/kernels/cuda/attention_mma_tiles.cuh"
#include "tegula/kernels/cuda/attention_rows.cuh"

namespace tegula::cuda {

constexpr int kGroups = TEGULA_GROUPS;  // of 16 rows of a warp
constexpr int kBlockThreads = 128 * kConsumers / kGroups;
constexpr int kQBytes = kTileM * kTileRowBytes, kKBytes = kTileN * kTileRowBytes;
// Steps of d at once: of all, addresses take the registers that two groups need, and what works on
// every score.
constexpr int kUnrolled = (kD > 64 && kGroups == 2) || kAlwaysMasks ? 4 : 16;
static_assert(kConsumers == 2 && kTileN % 16 == 0);

struct AttentionMma {
  static constexpr int kScores = RowsOfWarpgroup::kScores;

  const AttentionParams& p;
  const Tile& t;
  u32 q, k, v;  // tiles of kTileM and kTileN rows in shared memory
  RowsOfOutput (&rows)[2];
  u32 lane;

  template <int kCount>
  __device__ void fetch(u32 to, const AttentionTensor& x, int head, int first, int n_rows) const {
    copy_rows<kCount, kBlockThreads>(to, row_of<u16>(x, t.batch, first, head), x.row,
                                     n_rows - first, p.head_dim);
  }
#if TEGULA_PAGED
  // Keys in pages: each row is looked up; none past the sequence's end is read.
  __device__ void fetch_keys(u32 to, const AttentionTensor& x, int block) const {
    constexpr int kStep = kBlockThreads / 8;
    const int r = int(threadIdx.x) / 8, chunk = int(threadIdx.x) % 8, head = t.head / p.group;
    const int first = t.key + block * kTileN;
    if (block < t.n_blocks) {
#pragma unroll
      for (int i = 0; i < kTileN; i += kStep) {
        const int key = min(first + r + i, t.s.k_end - 1);
        const u16* from = row_of_key<u16>(p.f, x, t.s, t.batch, key, head) + 8 * chunk;
#pragma unroll
        for (int box = 0; box < kRowBoxes; ++box) {
          const int columns = min(max(p.head_dim - 64 * box - 8 * chunk, 0), 8);
          cp_async(to + swizzled(r, chunk) + box * (kTileN * kRowBytes) + i * kRowBytes,
                   from + 64 * box, first + r + i < t.s.k_end ? 2 * columns : 0);
        }
      }
    }
    cp_async_commit();
  }
#else
  __device__ void fetch_keys(u32 to, const AttentionTensor& x, int block) const {
    if (block < t.n_blocks)
      fetch<kTileN>(to, x, t.head / p.group, t.key + block * kTileN, p.seqlen_k);
    cp_async_commit();
  }
#endif
  // All that was asked for has landed, and all warps are done with what they read.
  __device__ static void meet() {
    cp_async_wait<0>();
    __syncthreads();
  }

  __device__ void run() const {
    int row[kGroups];
    const u32 first_row = q + (kRows * rows[0].wg + 16 * rows[0].warp) * kRowBytes;
    fetch<kTileM>(q, p.q, t.head, t.row, p.seqlen_q);
    fetch_keys(k, p.k, 0);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      RowsOfOutput& of = rows[g];
      row[g] = of.row_of_tile(t);
      of.top[0] = of.top[1] = kNegativeInfinity;
      of.sum[0] = of.sum[1] = 0.f;
#pragma unroll
      for (int i = 0; i < RowsOfOutput::kOut; ++i) of.o[i] = 0.f;
      if (t.n_blocks > 0) of.find_edges(t, row[g]);
    }
    for (int block = 0; block < t.n_blocks; ++block) {
      float scores[kGroups][kScores];
      u32 weights[kGroups][kScores / 2];
      meet();
      fetch_keys(v, p.v, block);
      make_scores<kTileM, kTileN, kUnrolled, kRows>(scores, first_row, k,
                                                    kGroups == 2 ? renewed(lane) : lane);
#pragma unroll
      for (int g = 0; g < kGroups; ++g)
        if (block < rows[g].begin || block >= rows[g].whole)
          rows[g].score(scores[g], t, row[g], block);
#pragma unroll
      for (int g = 0; g < kGroups; ++g) rows[g].count(t, row[g], block);
      meet();
      fetch_keys(k, p.k, block + 1);
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        RowsOfOutput& of = rows[g];
        of.softmax(scores[g], t);
        if constexpr (kHasDropout) of.drop(t, row[g], block, [&](int e) { scores[g][e] = 0.f; });
#pragma unroll
        for (int i = 0; i < kScores / 2; ++i)
          weights[g][i] = pack_element(scores[g][2 * i], scores[g][2 * i + 1]);
        if (of.rescale) {
#pragma unroll
          for (int i = 0; i < RowsOfOutput::kOut; ++i) of.o[i] *= of.grow[(i / 2) % 2];
        }
      }
      add_weighted<kTileN>([&](int g) { return rows[g].o; }, weights, v, lane);
    }
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      rows[g].finish_sums(t, row[g]);
      rows[g].write_rows(t, row[g]);
      if constexpr (kMayLeak)
        rows[g].repair(t, row[g],
                       [&](int, int i, int column, u16 bits) { rows[g].put(t, i, column, bits); });
    }
  }
};

}  // namespace tegula::cuda

using namespace tegula::cuda;

// A block a tile, of kBlockThreads threads and kQBytes + 2 kKBytes of shared memory.
extern "C" __global__ void __launch_bounds__(kBlockThreads, kGroups)
    attention_mma(const AttentionParams p) {
  extern __shared__ __align__(1024) char smem_bytes[];
  const u32 smem = smem_address(smem_bytes), lane = threadIdx.x % 32;
  const u32 warp = uniform(threadIdx.x / 32);
  const Tile t(p, int(blockIdx.x));
  // With one group the second stays unused.
  RowsOfOutput rows[2] = {{{p, kGroups == 2 ? 0 : warp / 4, lane, warp % 4}}, {{p, 1, lane, warp}}};
  AttentionMma{p, t, smem, smem + kQBytes, smem + kQBytes + kKBytes, rows, lane}.run();
}
