// Rows of logits to their cross-entropy, and to its gradient in their place.
//
//   lse = log Σ exp(logit),  picked = logit[target]
//   logit <- dlse · exp(logit - lse) + (dpicked where it is the target)
//
// A block has a row. Its threads walk it in steps of 8 elements, each with a running maximum and
// sum [Milakov and Gimelshein 2018, Alg. 3], which are joined in a fixed order.
//
// Variant, by -D: TEGULA_F16 0 | 1: logits of bf16 or f16; TEGULA_GRADS 0 | 1; TEGULA_GIVEN 0 | 1:
// lse is read, not formed; TEGULA_ID64 0 | 1 of targets.
#include "tegula/kernels/cuda/cross_entropy_params.h"
#include "tegula/kernels/cuda/strided.cuh"

using namespace tegula::cuda;

constexpr int kThreads = 512, kEach = 8;
constexpr float kLog2e = 1.44269504f, kLn2 = 0.693147181f;

// The largest logit so far, in units of 1/log2(e), and Σ 2^(logit - largest).
struct Sums {
  float top, sum;
  __device__ void join(float other_top, float other_sum) {
    const float higher = fmaxf(top, other_top);
    const float shift = higher == kNegativeInfinity ? 0.f : higher;
    sum = sum * exp2_approx(top - shift) + other_sum * exp2_approx(other_top - shift);
    top = higher;
  }
};

// Eight of a row; past its end -inf, of which exp is 0, so that no step asks for each element.
struct Eight {
  float at[kEach];
  __device__ Eight(const uint4& words, int n_left) {
    const u32 w[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      at[2 * i] = element_to_float(static_cast<u16>(w[i]));
      at[2 * i + 1] = element_to_float(static_cast<u16>(w[i] >> 16));
    }
    if (n_left >= kEach) return;
#pragma unroll
    for (int e = 0; e < kEach; ++e)
      if (e >= n_left) at[e] = kNegativeInfinity;
  }
  __device__ uint4 packed() const {
    return {pack_element(at[0], at[1]), pack_element(at[2], at[3]), pack_element(at[4], at[5]),
            pack_element(at[6], at[7])};
  }
};

__device__ inline float lse_of(const CrossEntropyParams& p, const u16* row) {
  __shared__ Sums of_warp[kThreads / 32];
  __shared__ float lse;
  Sums mine{kNegativeInfinity, 0.f};
  for (int i = threadIdx.x * kEach; i < p.v; i += kThreads * kEach) {
    const Eight x(*reinterpret_cast<const uint4*>(row + i), p.v - i);
    Sums step{kNegativeInfinity, 0.f};
#pragma unroll
    for (int e = 0; e < kEach; ++e) step.top = fmaxf(step.top, x.at[e]);
    step.top *= kLog2e;
    const float minus_shift = fminf(-step.top, 0x1.fffffep127f);  // -inf: a row may have only that
#pragma unroll
    for (int e = 0; e < kEach; ++e)
      step.sum += exp2_approx(__fmaf_rn(x.at[e], kLog2e, minus_shift));
    count_flops(4 * min(kEach, p.v - i));
    mine.join(step.top, step.sum);
  }
  for (int step = 16; step > 0; step /= 2) {
    const float top = __shfl_xor_sync(0xffffffffu, mine.top, step);
    const float sum = __shfl_xor_sync(0xffffffffu, mine.sum, step);
    mine.join(top, sum);
  }
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < kThreads / 32; ++w) mine.join(of_warp[w].top, of_warp[w].sum);
    const float shift = mine.top == kNegativeInfinity ? 0.f : mine.top;
    lse = shift * kLn2 + logf(mine.sum);
    count_flops(2);
  }
  __syncthreads();
  return lse;
}

extern "C" __global__ void __launch_bounds__(kThreads) cross_entropy(const CrossEntropyParams p) {
  begin_early();
  const long long token = blockIdx.x;
  u16* row = p.logits + token * p.row;
  const long long target = id_at(p.targets, token * p.target_stride);
  const bool is_picked = target >= 0 && target < p.v && target != p.ignore_index;
  // A thread reads and writes the same elements; the picked one is another's to write.
  const float picked = is_picked ? element_to_float(row[target]) : 0.f;
#if TEGULA_GIVEN
  const float lse = p.lse[token * p.lse_stride];
  __syncthreads();
#else
  const float lse = lse_of(p, row);
  if (threadIdx.x == 0) {
    p.lse[token * p.lse_stride] = lse;
    p.picked[token * p.picked_stride] = picked;
  }
#endif
#if TEGULA_GRADS
  const float dlse = p.dlse[token * p.dlse_stride], dpicked = p.dpicked[token * p.dpicked_stride];
  const float minus_shift = -lse * kLog2e;
  for (int i = threadIdx.x * kEach; i < p.v; i += kThreads * kEach) {
    auto* place = reinterpret_cast<uint4*>(row + i);
    Eight x(*place, p.v - i);
#pragma unroll
    for (int e = 0; e < kEach; ++e)
      x.at[e] = dlse * exp2_approx(__fmaf_rn(x.at[e], kLog2e, minus_shift));
    if (is_picked && i <= target && target < i + kEach) {
#pragma unroll
      for (int e = 0; e < kEach; ++e)
        if (i + e == target) x.at[e] += dpicked;
    }
    count_flops(4 * min(kEach, p.v - i));
    *place = x.packed();
  }
#endif
}

// n / 4 threads.
extern "C" __global__ void __launch_bounds__(256) add_part(const AddPartParams p) {
  begin_early();
  const long long i = (static_cast<long long>(blockIdx.x) * 256 + threadIdx.x) * 4;
  for (int e = 0; e < 4; ++e) {
    if (i + e >= p.n) return;
    const float sum = p.sum[i + e] + p.part[i + e];
    if (p.out != nullptr)
      p.out[i + e] = static_cast<u16>(pack_element(sum, 0.f));
    else
      p.sum[i + e] = sum;
  }
}
