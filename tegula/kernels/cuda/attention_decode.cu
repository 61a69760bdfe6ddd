// O = softmax(scale · Q Kᵀ + mask) V for few queries and many keys, bounded by reading K and V
// once.
//
// The query heads of one KV head, times the queries, are the rows of one small tile (or a few, of
// kRows, each a block of its own, which then find K and V in L2), so K and V pass once for all of
// them. Keys are cut into splits; a block takes one, its warps take steps of 16 keys in turn.
// Scores are computed transposed, Sᵀ = K Qᵀ and Oᵀ = Vᵀ Pᵀ, so that the 16 rows of mma.sync are
// keys or columns of V and nothing is padded but the query rows. A warp copies (cp.async) its next
// kSlots steps into shared memory of its own, which no other warp reads: it waits for its copies
// alone. Where there are more heads than multiprocessors, the warps of a block share out some KV
// heads (kHeads), so that blocks are few and long. The last block of a head combines its splits by
// their log-sum-exp, in order, so the bits depend on where splits are cut and on kHeads alone, and
// that is at multiples of keys_per_split. Flash-Decoding (Dao et al. 2023).
//
// Variant, by -D: TEGULA_HEAD_DIM 64 | 128 | 256 (at least head_dim: other columns are zeroes that
// nobody reads), TEGULA_ROWS 8 | 16, TEGULA_WARPS, TEGULA_HEADS (divides the warps; above 1
// there is one tile), TEGULA_SLOTS, TEGULA_BLOCKS a multiprocessor, TEGULA_PAGED 0 | 1, TEGULA_F16.
#include "tegula/kernels/cuda/attention_decode.cuh"

using namespace tegula::cuda;

// Grid (splits, n_heads_kv / kHeads * n_tiles, batch).
extern "C" __global__ void __launch_bounds__(kThreads, TEGULA_BLOCKS)
    attention_decode(const __grid_constant__ AttentionDecodeParams p) {
  extern __shared__ __align__(1024) char smem[];
  attend<true>(
      p,
      {static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.z),
       static_cast<int>(gridDim.y), static_cast<int>(gridDim.z)},
      smem);
}
