// O = softmax(scale · Q Kᵀ + mask) V by tiles with an online softmax, on the f32 units: no score
// ever reaches global memory.
//
// A block owns kTile query rows; K and V pass by in tiles of kTile rows through shared memory. Each
// row keeps its maximum m, its sum of weights l and its output; a new tile of scores s rescales
// them:
//   m' = max(m, max s), w = exp(s - m'), l' = l exp(m - m') + Σ w, o' = o exp(m - m') + w V
// Global traffic per head: 2 N² d / kTile elements of K and V instead of N² scores five times; what
// bounds it is shared-memory reads, two for each multiply-add. FlashAttention (Dao et al. 2022),
// Alg. 1.
//
// Variant, by -D: TEGULA_HEAD_DIM 64 | 128.
#include "tegula/kernels/cuda/attention_params.h"
#include "tegula/kernels/cuda/count.cuh"
#include "tegula/kernels/cuda/ptx/types.cuh"

namespace tegula::cuda {

constexpr int kD = TEGULA_HEAD_DIM;
constexpr int kTile = 32;      // query rows, and keys of a tile
constexpr int kThreads = 128;  // 4 threads a query row
constexpr int kPerRow = kThreads / kTile;
constexpr int kScores = kTile / kPerRow;  // scores of a thread: keys part + 4 j
constexpr int kOut = kD / kPerRow;        // outputs of a thread: columns part + 4 e
constexpr int kPitch = kD + 1;            // odd, so that rows start in different banks

// Rows [first, first + kTile) of a head into shared memory as f32; rows past the end are zero.
__device__ inline void load_tile(float* tile, const AttentionTensor& t, int batch, int head,
                                 int first, int n_rows) {
  const u16* from = t.data + batch * t.batch + head * t.head;
  for (int at = threadIdx.x; at < kTile * kD; at += kThreads) {
    const int row = at / kD, e = at % kD;
    const bool inside = first + row < n_rows;
    tile[row * kPitch + e] = inside ? bf16_to_float(from[(first + row) * t.row + e]) : 0.f;
  }
}

}  // namespace tegula::cuda

using namespace tegula::cuda;

// Grid (⌈sq/kTile⌉, b·hq) of kThreads threads.
extern "C" __global__ void __launch_bounds__(kThreads)
    attention_tiled(const AttentionRungParams p) {
  extern __shared__ float smem[];
  float* q = smem;                // [kTile][kD]
  float* k = q + kTile * kPitch;  // [kTile][kD], then V
  float* w = k + kTile * kPitch;  // [kTile][kTile] weights
  const int batch = blockIdx.y / p.n_heads_q, head = blockIdx.y % p.n_heads_q;
  const int first = blockIdx.x * kTile;
  const int row = threadIdx.x / kPerRow, part = threadIdx.x % kPerRow;
  const int shift = p.seqlen_k - p.seqlen_q;
  const int keys = p.is_causal ? min(p.seqlen_k, first + row + 1 + shift) : p.seqlen_k;
  const int last = p.is_causal ? min(p.seqlen_k, first + kTile + shift) : p.seqlen_k;

  load_tile(q, p.q, batch, head, first, p.seqlen_q);
  float top = kNegativeInfinity, sum = 0, out[kOut] = {};
  for (int j0 = 0; j0 < last; j0 += kTile) {
    __syncthreads();
    load_tile(k, p.k, batch, head / p.group, j0, p.seqlen_k);
    __syncthreads();
    float s[kScores], next = top;
    for (int j = 0; j < kScores; ++j) {
      const int key = part + kPerRow * j;
      s[j] = 0;
      for (int e = 0; e < kD; ++e) s[j] = __fmaf_rn(q[row * kPitch + e], k[key * kPitch + e], s[j]);
      s[j] = j0 + key < keys ? s[j] * p.scale : kNegativeInfinity;
      if (j0 + key < keys && first + row < p.seqlen_q) count_flops(1 + 4 + 4 * kD);
      next = fmaxf(next, s[j]);
    }
    for (int m = 1; m < kPerRow; m *= 2) next = fmaxf(next, __shfl_xor_sync(0xffffffff, next, m));
    const float safe = next == kNegativeInfinity ? 0.f : next;
    const float grow = expf(top - safe);
    float add = 0;
    for (int j = 0; j < kScores; ++j) {
      s[j] = expf(s[j] - safe);
      add += s[j];
      w[row * (kTile + 1) + part + kPerRow * j] = s[j];
    }
    sum = __fmaf_rn(sum, grow, add);
    top = next;
    __syncthreads();
    load_tile(k, p.v, batch, head / p.group, j0, p.seqlen_k);
    __syncthreads();
    for (int e = 0; e < kOut; ++e) out[e] *= grow;
    for (int j = 0; j < kTile; ++j) {
      const float weight = w[row * (kTile + 1) + j];
      for (int e = 0; e < kOut; ++e)
        out[e] = __fmaf_rn(weight, k[j * kPitch + part + kPerRow * e], out[e]);
    }
  }
  for (int m = 1; m < kPerRow; m *= 2) sum += __shfl_xor_sync(0xffffffff, sum, m);
  if (first + row >= p.seqlen_q) return;
  u16* o = p.o.data + batch * p.o.batch + (first + row) * p.o.row + head * p.o.head;
  const float share = sum == 0.f ? 0.f : 1.f / sum;
  for (int e = 0; e < kOut; ++e) o[part + kPerRow * e] = u16(pack_bf16(out[e] * share, 0.f));
  if (part == 0 && keys > 0) count_flops(3 + kD);
  if (part == 0)
    p.lse[static_cast<long long>(blockIdx.y) * p.seqlen_q + first + row] =
        sum == 0.f ? kNegativeInfinity : top + logf(sum);
}
