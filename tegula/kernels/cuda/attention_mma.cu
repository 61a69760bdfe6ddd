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
// TEGULA_GROUPS 1 | 2; TEGULA_LAZY_LOG2; TEGULA_CONSUMERS=2, halves of 64 rows; masks and score
// functions: attention_score.cuh.
#include "tegula/kernels/cuda/attention_rows.cuh"
#include "tegula/kernels/cuda/ptx/cp_async.cuh"
#include "tegula/kernels/cuda/ptx/mma.cuh"
#include "tegula/kernels/cuda/ptx/tma.cuh"

namespace tegula::cuda {

constexpr int kGroups = TEGULA_GROUPS;  // of 16 rows of a warp
constexpr int kBlockThreads = 128 * kConsumers / kGroups;
constexpr int kBoxes = (kD + kBoxColumns - 1) / kBoxColumns;
constexpr int kQBytes = kBoxes * kTileM * kRowBytes;
constexpr int kKBytes = kBoxes * kTileN * kRowBytes;
// Steps of d at once: of all, addresses take the registers that d128 needs for its two groups, and
// what works on every score for that.
constexpr int kUnrolled = (kD == 128 && kGroups == 2) || kAlwaysMasks ? 2 : 16;
static_assert(kConsumers == 2 && kTileN % 16 == 0);

struct AttentionMma {
  static constexpr int kScores = RowsOfWarpgroup::kScores;

  const AttentionParams& p;
  const Tile& t;
  u32 q, k, v;  // [kBoxes][kTileM or kTileN][64] in shared memory
  RowsOfOutput (&rows)[2];
  u32 lane;

  // Rows [first, first + kCount) of a head; what lies past the tensor's end is zero. A thread
  // copies the same 16 bytes of every kStep-th row: one address, not one a copy.
  template <int kCount>
  __device__ void fetch(u32 to, const AttentionTensor& x, int head, int first, int n_rows) const {
    constexpr int kStep = kBlockThreads / 8;
    static_assert(kCount % kStep == 0);
    const int r = int(threadIdx.x) / 8, chunk = int(threadIdx.x) % 8;
    const u16* from = row_of<u16>(x, t.batch, first + r, head) + 8 * chunk;
    to += swizzled(r, chunk);
#pragma unroll
    for (int i = 0; i < kCount; i += kStep, from += kStep * x.row)
#pragma unroll
      for (int box = 0; box < kBoxes; ++box) {
        const int columns = min(max(p.head_dim - 64 * box - 8 * chunk, 0), 8);
        cp_async(to + box * (kCount * kRowBytes) + i * kRowBytes, from + 64 * box,
                 first + r + i < n_rows ? 2 * columns : 0);
      }
  }
  __device__ void fetch_keys(u32 to, const AttentionTensor& x, int block) const {
    if (block < t.n_blocks)
      fetch<kTileN>(to, x, t.head / p.group, t.key + block * kTileN, p.seqlen_k);
    cp_async_commit();
  }
  // All that was asked for has landed, and all warps are done with what they read.
  __device__ static void meet() {
    cp_async_wait<0>();
    __syncthreads();
  }

  // scores[16][kTileN] of each group = Q Kᵀ
  __device__ void products(float (&scores)[kGroups][kScores]) const {
#pragma unroll
    for (int g = 0; g < kGroups; ++g)
#pragma unroll
      for (int i = 0; i < kScores; ++i) scores[g][i] = 0.f;
#pragma unroll kUnrolled
    for (u32 d = 0; d < kD / 16; ++d) {
      const u32 box = d / 4, chunk = d % 4 * 2;
      u32 a[kGroups][4];
#pragma unroll
      for (int g = 0; g < kGroups; ++g)
        ldmatrix(
            q + box * (kTileM * kRowBytes) +
                swizzled(kRows * rows[g].wg + 16 * rows[g].warp + (lane & 15), chunk + (lane >> 4)),
            a[g]);
#pragma unroll
      for (u32 n = 0; n < kTileN / 16; ++n) {
        u32 b[4];
        ldmatrix(k + box * (kTileN * kRowBytes) +
                     swizzled(16 * n + (lane >> 4) * 8 + (lane & 7), chunk + (lane >> 3 & 1)),
                 b);
#pragma unroll
        for (int g = 0; g < kGroups; ++g) multiply(scores[g] + 8 * n, a[g], b);
      }
    }
  }

  // o[16][kD] of each group += weights V
  __device__ void outputs(const u32 (&weights)[kGroups][kScores / 2]) const {
#pragma unroll
    for (u32 n = 0; n < kTileN / 16; ++n)
#pragma unroll
      for (u32 d = 0; d < kD / 16; ++d) {
        u32 b[4];
        ldmatrix_transposed(v + d / 4 * (kTileN * kRowBytes) +
                                swizzled(16 * n + (lane & 15), d % 4 * 2 + (lane >> 4)),
                            b);
#pragma unroll
        for (int g = 0; g < kGroups; ++g) multiply(rows[g].o + 8 * d, weights[g] + 4 * n, b);
      }
  }
  // Two neighbouring tiles of 8 columns.
  __device__ static void multiply(float* to, const u32* a, const u32 (&b)[4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      mma_m16n8k16(reinterpret_cast<float(&)[4]>(to[4 * half]), a[0], a[1], a[2], a[3], b[2 * half],
                   b[2 * half + 1]);
  }

  __device__ void run() const {
    int row[kGroups];
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
      products(scores);
#pragma unroll
      for (int g = 0; g < kGroups; ++g)
        if (block < rows[g].begin || block >= rows[g].whole)
          rows[g].score(scores[g], t, row[g], block);
      meet();
      fetch_keys(k, p.k, block + 1);
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        RowsOfOutput& of = rows[g];
        of.softmax(scores[g], t);
        if constexpr (kHasDropout) of.drop(scores[g], t, row[g], block);
#pragma unroll
        for (int i = 0; i < kScores / 2; ++i)
          weights[g][i] = pack_element(scores[g][2 * i], scores[g][2 * i + 1]);
        if (of.rescale) {
#pragma unroll
          for (int i = 0; i < RowsOfOutput::kOut; ++i) of.o[i] *= of.grow[(i / 2) % 2];
        }
      }
      outputs(weights);
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
  // Of one group the second stays unused.
  RowsOfOutput rows[2] = {{{p, kGroups == 2 ? 0 : warp / 4, lane, warp % 4}}, {{p, 1, lane, warp}}};
  AttentionMma{p, t, smem, smem + kQBytes, smem + kQBytes + kKBytes, rows, lane}.run();
}
