// An f32 number as the sum of three bf16, and a kernel that splits tensors so.
//
//   x = a + b + c + e,  a = bf16(x), b = bf16(x - a), c = bf16(x - a - b),  |e| <= 2^-27 |x|
// The three parts hold 24 bits, all that f32 has, over f32's whole range. A product of two numbers
// is then six products of parts, those of weight 2^-16 and above: the tensor cores do them in the
// time of three products of TF32, which would keep 22 bits. What is not finite becomes NaN.
//
// Source: Henry, Tang, Heinecke 2019, "Leveraging the bfloat16 artificial intelligence datatype for
// higher-precision computations", §2.
#pragma once

#include "tegula/kernels/cuda/attention_params.h"
#include "tegula/kernels/cuda/ptx/types.cuh"

namespace tegula::cuda {

constexpr int kParts = 3;
// The parts of each factor in each of the six products, smallest first: the tensor cores cut a sum
// off where the larger of its terms ends, so what is small must be summed before.
constexpr int kProducts = 6;
__device__ constexpr int part_of_a(int product) {
  return product == 0 ? 0 : product == 1 ? 1 : product == 2 ? 2 : product == 4 ? 1 : 0;
}
__device__ constexpr int part_of_b(int product) {
  return product == 0 ? 2 : product == 1 ? 1 : product == 3 ? 1 : 0;
}

// Part of two neighbours, and what is left of them.
__device__ inline u32 take_part(float& low, float& high) {
  const u32 part = pack_bf16(low, high);
  low -= __uint_as_float(part << 16), high -= __uint_as_float(part & 0xFFFF0000);
  return part;
}

// Two neighbouring columns of a row, those below head_dim; whether they are finite.
__device__ inline bool put_two(float* row, int column, int head_dim, float x, float y) {
  if (column + 1 < head_dim && reinterpret_cast<u64>(row) % 8 == 0) {
    *reinterpret_cast<float2*>(row + column) = make_float2(x, y);
  } else {
    if (column < head_dim) row[column] = x;
    if (column + 1 < head_dim) row[column + 1] = y;
  }
  return fabsf(x) < -kNegativeInfinity && fabsf(y) < -kNegativeInfinity;
}

// Grid (⌈most rows / (2048 / TEGULA_HEAD_DIM)⌉, most heads, tensors) of 256 threads, eight columns
// each; columns past head_dim become zeros.
extern "C" __global__ void __launch_bounds__(256) attention_split(const SplitParams p) {
  constexpr int kD = TEGULA_HEAD_DIM, kThreadsOfRow = kD / 8;
  if (p.leaked != nullptr && blockIdx.x + blockIdx.y + blockIdx.z + threadIdx.x == 0) *p.leaked = 0;
  const SplitTensor& t = p.t[blockIdx.z];
  const int row = int(blockIdx.x) * (256 / kThreadsOfRow) + int(threadIdx.x) / kThreadsOfRow;
  const int column = int(threadIdx.x) % kThreadsOfRow * 8, n_heads = p.batch * t.heads;
  if (int(blockIdx.y) >= n_heads || row >= t.rows) return;
  const int batch = int(blockIdx.y) / t.heads, head = int(blockIdx.y) % t.heads;
  const float* from = t.data + batch * t.batch + row * t.row + head * t.head + column;
  float x[8];
  if (p.is_aligned && column + 8 <= p.head_dim) {
#pragma unroll
    for (int i = 0; i < 8; i += 4) {
      const float4 y = __ldcs(reinterpret_cast<const float4*>(from + i));
      x[i] = y.x, x[i + 1] = y.y, x[i + 2] = y.z, x[i + 3] = y.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = column + i < p.head_dim ? from[i] : 0.f;
  }
  const long long size = (long long)(n_heads)*t.rows * kD;
  u16* to = t.parts + ((long long)(blockIdx.y) * t.rows + row) * kD + column;
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    uint4 y;
    y.x = take_part(x[0], x[1]), y.y = take_part(x[2], x[3]);
    y.z = take_part(x[4], x[5]), y.w = take_part(x[6], x[7]);
    *reinterpret_cast<uint4*>(to + part * size) = y;
  }
}

}  // namespace tegula::cuda
