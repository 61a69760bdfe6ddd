// Vᵀ of e4m3 for the tensor cores, whose 8-bit operands lie along the sum: a kernel that runs
// before attention_sm90 and reads and writes V once.
//
//   v [b, sk, hk, d] e4m3 -> vt [b, hk, d, sk rounded up to 16], 0 past sk
//
// The weights come to the product in the registers where their scores were summed: a thread t
// (0..3) of a row has the keys 8j + 2t + c (j, c < 2) of each 16, and the tensor cores take its
// four bytes for the keys 4t .. 4t + 3. So position 4t + 2j + c of each 16 in Vᵀ has key 8j + 2t +
// c.
#pragma once

#include "tegula/kernels/cuda/attention_params.h"
#include "tegula/kernels/cuda/ptx/sync.cuh"

#if TEGULA_F8
namespace tegula::cuda {

// 16 keys of 4 columns each, as words of 4 columns -> of each column 16 bytes in Vᵀ's order.
__device__ inline void transpose_16x4(const u32 (&keys)[16], uint4 (&columns)[4]) {
  u32 out[4][4];
#pragma unroll
  for (int t = 0; t < 4; ++t) {
    u32 even[2], odd[2];  // columns 0 and 1, 2 and 3; of the keys 2t and 2t + 1, then 8 more
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      even[j] = __byte_perm(keys[8 * j + 2 * t], keys[8 * j + 2 * t + 1], 0x5140);
      odd[j] = __byte_perm(keys[8 * j + 2 * t], keys[8 * j + 2 * t + 1], 0x7362);
    }
    out[0][t] = __byte_perm(even[0], even[1], 0x5410);
    out[1][t] = __byte_perm(even[0], even[1], 0x7632);
    out[2][t] = __byte_perm(odd[0], odd[1], 0x5410);
    out[3][t] = __byte_perm(odd[0], odd[1], 0x7632);
  }
#pragma unroll
  for (int c = 0; c < 4; ++c) columns[c] = {out[c][0], out[c][1], out[c][2], out[c][3]};
}

}  // namespace tegula::cuda

// Grid (⌈keys / 128⌉, KV heads, batch) of 2 · head_dim threads: a thread turns 16 keys of 4
// columns, and whole lines of 128 keys of a column leave through shared memory, of 128 · head_dim
// bytes. The kernel after this one may start (it waits before it reads Vᵀ).
extern "C" __global__ void __launch_bounds__(2 * TEGULA_HEAD_DIM)
    attention_f8_transpose(const tegula::cuda::AttentionTensor v, tegula::cuda::u8* vt,
                           int seqlen_k, int head_dim, int n_heads) {
  using namespace tegula::cuda;
  constexpr int kPieces = 8;       // of 16 keys
  extern __shared__ uint4 tile[];  // [head_dim][piece, swizzled]
  start_grid_after();
  const int padded = (seqlen_k + 15) / 16 * 16, quads = head_dim / 4;
  const int quad = int(threadIdx.x) % quads, piece = int(threadIdx.x) / quads;
  const int first = int(blockIdx.x) * 16 * kPieces, head = int(blockIdx.y), batch = int(blockIdx.z);
  const u8* from = reinterpret_cast<const u8*>(v.data) + batch * v.batch + head * v.head + 4 * quad;
  u32 keys[16];
#pragma unroll
  for (int n = 0; n < 16; ++n) {
    const int key = first + 16 * piece + n;
    keys[n] = key < seqlen_k ? *reinterpret_cast<const u32*>(from + key * v.row) : 0;
  }
  uint4 columns[4];
  transpose_16x4(keys, columns);
#pragma unroll
  for (int c = 0; c < 4; ++c)
    tile[(4 * quad + c) * kPieces + (piece ^ quad % kPieces)] = columns[c];
  __syncthreads();
  u8* to = vt + ((long long)(batch)*n_heads + head) * head_dim * padded;
  for (int at = int(threadIdx.x); at < head_dim * kPieces; at += int(blockDim.x)) {
    const int column = at / kPieces, of = at % kPieces, key = first + 16 * of;
    if (key < padded)
      *reinterpret_cast<uint4*>(to + (long long)(column)*padded + key) =
          tile[column * kPieces + (of ^ column / 4 % kPieces)];
  }
}
#endif
