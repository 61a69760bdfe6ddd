// mma.sync: D[16 x 8] += A[16 x 16] B[16 x 8] by one warp, bf16 (of a variant of f16: f16) in, f32
// out, synchronous.
//
// Fragments, for lane l, g = l/4, t = l%4; two neighbouring k (or columns of D) to a register:
//   a[0] row g, k 2t     a[1] row g + 8, k 2t     a[2] row g, k 2t + 8     a[3] row g + 8, k 2t + 8
//   b[0] k 2t, column g  b[1] k 2t + 8, column g
//   d[0], d[1] row g, columns 2t and 2t + 1       d[2], d[3] row g + 8
#pragma once

#include "tegula/kernels/cuda/ptx/types.cuh"

namespace tegula::cuda {

__device__ inline void mma_m16n8k16(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
#if TEGULA_F16
#define TEGULA_MMA_TYPES "f16.f16"
#else
#define TEGULA_MMA_TYPES "bf16.bf16"
#endif
  asm("mma.sync.aligned.m16n8k16.row.col.f32." TEGULA_MMA_TYPES
      ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// An 8 x 8 matrix of 16-bit elements, lane l holding row l/4, columns 2(l%4) and +1: its transpose.
__device__ inline u32 transpose_8x8(u32 x) {
  u32 y;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

}  // namespace tegula::cuda
