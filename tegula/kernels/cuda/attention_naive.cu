// O = softmax(scale · Q Kᵀ + mask) V with all scores in global memory: the bottom rung.
//
// Three kernels: scores S [b, hq, sq, sk] in f32 (one thread a score), softmax of their rows in
// place (one warp a row), and O = S V (one thread an output). Global traffic per head: 2 N² d reads
// for S and for O each, less what the caches catch, and five passes over the N² scores.
#include "tegula/kernels/cuda/attention_params.h"
#include "tegula/kernels/cuda/count.cuh"
#include "tegula/kernels/cuda/ptx/types.cuh"

namespace tegula::cuda {

__device__ inline const u16* row_of(const AttentionTensor& t, int batch, int row, int head) {
  return t.data + batch * t.batch + row * t.row + head * t.head;
}

// Keys that query `i` sees: those below the result.
__device__ inline int keys_of(const AttentionRungParams& p, int i) {
  return p.is_causal ? max(0, min(p.seqlen_k, i + 1 + p.seqlen_k - p.seqlen_q)) : p.seqlen_k;
}

__device__ inline float* scores_of(const AttentionRungParams& p, int head_of_all, int i) {
  return p.scores + (static_cast<long long>(head_of_all) * p.seqlen_q + i) * p.seqlen_k;
}

}  // namespace tegula::cuda

using namespace tegula::cuda;

// Grid (⌈sk/16⌉, ⌈sq/16⌉, b·hq) of 16×16 threads.
extern "C" __global__ void attention_naive_scores(const AttentionRungParams p) {
  const int j = blockIdx.x * 16 + threadIdx.x, i = blockIdx.y * 16 + threadIdx.y;
  if (i >= p.seqlen_q || j >= keys_of(p, i)) return;
  const int batch = blockIdx.z / p.n_heads_q, head = blockIdx.z % p.n_heads_q;
  const u16* q = row_of(p.q, batch, i, head);
  const u16* k = row_of(p.k, batch, j, head / p.group);
  float s = 0;
  for (int e = 0; e < p.head_dim; ++e) s = __fmaf_rn(bf16_to_float(q[e]), bf16_to_float(k[e]), s);
  count_flops(2 * p.head_dim + 1);
  scores_of(p, blockIdx.z, i)[j] = s * p.scale;
}

// Grid (⌈sq/4⌉, b·hq) of 32×4 threads: a warp a row.
extern "C" __global__ void attention_naive_softmax(const AttentionRungParams p) {
  const int i = blockIdx.x * 4 + threadIdx.y, lane = threadIdx.x;
  if (i >= p.seqlen_q) return;
  const int keys = keys_of(p, i);
  float* s = scores_of(p, blockIdx.y, i);
  float top = kNegativeInfinity, sum = 0;
  for (int j = lane; j < keys; j += 32) top = fmaxf(top, s[j]);
  for (int m = 16; m > 0; m /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, m));
  for (int j = lane; j < keys; j += 32) sum += s[j] = expf(s[j] - top);
  for (int m = 16; m > 0; m /= 2) sum += __shfl_xor_sync(0xffffffff, sum, m);
  for (int j = lane; j < keys; j += 32) s[j] /= sum;
  // As the op counts: a row's shares are one division, its outputs' products.
  if (lane == 0 && keys > 0) count_flops(4 * keys + 3 + p.head_dim);
  if (lane == 0)
    p.lse[static_cast<long long>(blockIdx.y) * p.seqlen_q + i] =
        keys == 0 ? kNegativeInfinity : top + logf(sum);
}

// Grid (sq, b·hq) of head_dim threads.
extern "C" __global__ void attention_naive_output(const AttentionRungParams p) {
  const int i = blockIdx.x, e = threadIdx.x;
  const int batch = blockIdx.y / p.n_heads_q, head = blockIdx.y % p.n_heads_q;
  const float* s = scores_of(p, blockIdx.y, i);
  const u16* v = row_of(p.v, batch, 0, head / p.group) + e;
  const int keys = keys_of(p, i);
  float sum = 0;
  for (int j = 0; j < keys; ++j) sum = __fmaf_rn(s[j], bf16_to_float(v[j * p.v.row]), sum);
  count_flops(2 * keys);
  p.o.data[batch * p.o.batch + i * p.o.row + head * p.o.head + e] = u16(pack_bf16(sum, 0.f));
}
