// The product of a loss's head, x wᵀ, that writes what a softmax needs instead of the logits:
//
//   e[i, j] = exp(logit[i, j] - shift[i]), sums[i, c] = Σ e over columns 64 c, …, 64 c + 63
//
// logits rounded to bf16, as they would be written; sums of e before it is rounded, in a fixed
// order. Padding up to whole pieces of 8 columns is 0. With a row's shift near its largest logit
// the gradient is e · scale[i]: no pass over the logits is left [cf. Milakov and Gimelshein 2018,
// whose pass this spares; cross_entropy.cu scales rows].
//
// Variant, by -D: as matmul_fused_sm90.cuh. Counted are the 8 operations a logit by which the op
// prices lse and the gradient.
#include "tegula/kernels/cuda/count.cuh"
#include "tegula/kernels/cuda/matmul_params.h"
#include "tegula/kernels/cuda/ptx/types.cuh"

namespace tegula::cuda::tile {

using Epilogue = LogitsEpilogue;

struct Factors {
  float shift;
};

__device__ __forceinline__ Factors load(const Epilogue& p, int row, int, int) {
  return {p.shift[row]};
}
__device__ __forceinline__ void prefetch(const Epilogue&, int, int, int) {}

// 8 threads beside each other have 64 columns of a row; behind the last column there are fewer.
__device__ __forceinline__ void epilogue(const Epilogue& p, const Factors& f, const char* product,
                                         int row, int column, int n_columns) {
  constexpr float kLog2e = 1.44269504f;
  const uint4 words = *reinterpret_cast<const uint4*>(product);
  const u32 x[4] = {words.x, words.y, words.z, words.w};
  const int n_left = n_columns - column;
  u32 e[4];
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float low = exp2_approx(__fmaf_rn(element_to_float(u16(x[i])), kLog2e, -f.shift));
    float high = exp2_approx(__fmaf_rn(element_to_float(u16(x[i] >> 16)), kLog2e, -f.shift));
    if (2 * i >= n_left) low = 0;
    if (2 * i + 1 >= n_left) high = 0;
    sum += low + high;
    e[i] = pack_element(low, high);
  }
  *reinterpret_cast<uint4*>(p.e + row * p.row + column) = {e[0], e[1], e[2], e[3]};

  const u32 lane = threadIdx.x % 32, own = lane % 8, first = lane - own;
  const u32 n_threads = min(8, (n_columns - column / 64 * 64 + 7) / 8);
  const u32 threads = ((1u << n_threads) - 1) << first;
#pragma unroll
  for (u32 step = 1; step < 8; step *= 2) {
    const u32 other = own ^ step;
    const float theirs = __shfl_sync(threads, sum, first + (other < n_threads ? other : own));
    if (other < n_threads) sum += theirs;
  }
  if (own == 0) p.sums[row * p.n_sums + column / 64] = sum;
  count_flops(8 * min(8, n_left));
}

}  // namespace tegula::cuda::tile

#include "tegula/kernels/cuda/matmul_fused_sm90.cuh"
