// Copies rows of 16-bit elements from one layout [b, s, h, d] to another: what lies where 16-byte
// copies cannot reach it, to and from where they can.
#include "tegula/kernels/cuda/attention_params.h"
#include "tegula/kernels/cuda/ptx/types.cuh"

using namespace tegula::cuda;

// Grid (any) of 256 threads: a warp a row.
extern "C" __global__ void attention_pad(const AttentionPadParams p) {
  const long long n_warps = static_cast<long long>(gridDim.x) * (blockDim.x / 32);
  const int lane = threadIdx.x % 32;
  long long row = (static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  for (; row < p.n_rows; row += n_warps) {
    const long long token = row / p.n_heads, batch = token / p.seqlen;
    const int head = int(row - token * p.n_heads), i = int(token - batch * p.seqlen);
    const u16* from = p.from.data + batch * p.from.batch + i * p.from.row + head * p.from.head;
    u16* to = p.to.data + batch * p.to.batch + i * p.to.row + head * p.to.head;
    for (int c = lane; c < p.head_dim; c += 32) to[c * p.to_step] = from[c * p.from_step];
  }
}
