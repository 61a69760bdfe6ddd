// Rows of logits to their cross-entropy, and to its gradient in their place.
//
//   lse = log Σ exp(logit),  picked = logit[target]
//   logit <- dlse · exp(logit - lse) + (dpicked where it is the target)
//
// A block has a row. Its threads walk it in steps of 8 elements, each with a running maximum and
// sum [Milakov and Gimelshein 2018, Alg. 3], which are joined in a fixed order. Where both lse and
// the gradient are made, the row stays in shared memory between, as far as there is room.
//
// Variant, by -D: TEGULA_F16 0 | 1: logits of bf16 or f16; TEGULA_GRADS 0 | 1; TEGULA_GIVEN 0 | 1:
// lse is read, not formed; TEGULA_ID64 0 | 1 of targets. TEGULA_SCALED 1: what the head needs whose
// product writes exponentials (matmul_sm90.cu, TEGULA_EXP), beside it:
//   pick_targets  shift: the target's logit
//   scale_rows    lse; the exponentials' scale, dlse / Σ, which x and dx are multiplied with
//   instead redo_rows     the gradient of rows whose sum is out of range, once the product wrote
//   logits
#ifndef TEGULA_SCALED
#define TEGULA_SCALED 0
#endif
#include "tegula/kernels/cuda/cross_entropy_params.h"
#include "tegula/kernels/cuda/ptx/cp_async.cuh"
#include "tegula/kernels/cuda/strided.cuh"

using namespace tegula::cuda;

constexpr int kThreads = kCrossEntropyThreads, kEach = 8, kAhead = kCrossEntropyAhead;
constexpr bool kReadsTwice = TEGULA_GRADS && !TEGULA_GIVEN;
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

// A thread's part of a row, walked up and then down. A row that is read twice goes through a ring
// of shared memory: its copies run kAhead steps ahead, and the way down begins with the steps that
// the ring still has, all of them if it has room. A thread reads what it has copied itself, so it
// waits for nothing but its own copies.
class Part {
 public:
  const int n_steps;

  __device__ Part(const CrossEntropyParams& p, u16* row, uint4* ring)
      : n_steps(p.v > first_at(0) ? (p.v - 1 - first_at(0)) / (kThreads * kEach) + 1 : 0),
        row_(row),
        ring_(ring + threadIdx.x),
        n_slots_(p.n_slots) {
    if constexpr (kReadsTwice)
      for (int step = 0; step < kAhead; ++step) copy(step, step);
  }
  __device__ static int first_at(int step) {
    return (step * kThreads + static_cast<int>(threadIdx.x)) * kEach;
  }
  __device__ uint4* place(int step) const {
    return reinterpret_cast<uint4*>(row_ + first_at(step));
  }

  __device__ uint4 next(int step) {
    if constexpr (!kReadsTwice) return *place(step);
    copy(step + kAhead, ahead_);
    if (++ahead_ == n_slots_) ahead_ = 0;
    cp_async_wait<kAhead>();
    const uint4 words = ring_[slot_ * kThreads];
    if (++slot_ == n_slots_) slot_ = 0;
    return words;
  }
  __device__ uint4 back(int step) {
    if constexpr (!kReadsTwice) return *place(step);
    slot_ = (slot_ == 0 ? n_slots_ : slot_) - 1;
    cp_async_wait<kAhead>();
    const uint4 words = ring_[slot_ * kThreads];
    copy(step - n_slots_, slot_);
    return words;
  }

 private:
  __device__ void copy(int step, int slot) {
    if (step >= 0 && step < n_steps)
      cp_async(smem_address(ring_ + slot * kThreads), place(step), 16);
    cp_async_commit();
  }

  u16* row_;
  uint4* ring_;
  int n_slots_, slot_ = 0, ahead_ = kAhead;
};

__device__ inline float lse_of(const CrossEntropyParams& p, Part& part) {
  __shared__ Sums of_warp[kThreads / 32];
  __shared__ float lse;
  Sums mine{kNegativeInfinity, 0.f};
  for (int s = 0; s < part.n_steps; ++s) {
    const int n_left = p.v - part.first_at(s);
    const Eight x(part.next(s), n_left);
    Sums step{kNegativeInfinity, 0.f};
#pragma unroll
    for (int e = 0; e < kEach; ++e) step.top = fmaxf(step.top, x.at[e]);
    step.top *= kLog2e;
    const float minus_shift = fminf(-step.top, 0x1.fffffep127f);  // -inf: a row may have only that
#pragma unroll
    for (int e = 0; e < kEach; ++e)
      step.sum += exp2_approx(__fmaf_rn(x.at[e], kLog2e, minus_shift));
    if (!TEGULA_SCALED) count_flops(4 * min(kEach, n_left));
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
    if (!TEGULA_SCALED) count_flops(2);
  }
  __syncthreads();
  return lse;
}

__device__ inline bool is_picked_of(const CrossEntropyParams& p, long long target) {
  return target >= 0 && target < p.v && target != p.ignore_index;
}

__device__ inline void run_row(const CrossEntropyParams& p, long long token, uint4* ring) {
  u16* row = p.logits + token * p.row;
  Part part(p, row, ring);
  const long long target = id_at(p.targets, token * p.target_stride);
  const bool is_picked = is_picked_of(p, target);
  // A thread reads and writes the same elements; the picked one is another's to write.
  const float picked = is_picked ? element_to_float(row[target]) : 0.f;
#if TEGULA_GRADS
  const float dlse = p.dlse[token * p.dlse_stride], dpicked = p.dpicked[token * p.dpicked_stride];
#endif
#if TEGULA_GIVEN
  const float lse = p.lse[token * p.lse_stride];
  __syncthreads();
#else
  const float lse = lse_of(p, part);
  if (threadIdx.x == 0) {
    p.lse[token * p.lse_stride] = lse;
    p.picked[token * p.picked_stride] = picked;
  }
#endif
#if TEGULA_GRADS
  const float minus_shift = -lse * kLog2e;
  for (int s = part.n_steps - 1; s >= 0; --s) {
    const int i = part.first_at(s);
    Eight x(part.back(s), p.v - i);
#pragma unroll
    for (int e = 0; e < kEach; ++e)
      x.at[e] = dlse * exp2_approx(__fmaf_rn(x.at[e], kLog2e, minus_shift));
    if (is_picked && i <= target && target < i + kEach) {
#pragma unroll
      for (int e = 0; e < kEach; ++e)
        if (i + e == target) x.at[e] += dpicked;
    }
    if (!TEGULA_SCALED) count_flops(4 * min(kEach, p.v - i));
    *part.place(s) = x.packed();
  }
#endif
}

#if !TEGULA_SCALED
// Two blocks a multiprocessor are what rows of 57,344 logits leave room for.
extern "C" __global__ void __launch_bounds__(kThreads, 2)
    cross_entropy(const CrossEntropyParams p) {
  extern __shared__ uint4 ring[];
  begin_early();
  run_row(p, blockIdx.x, ring);
}
#else
constexpr int kWarps = kScaledRowsThreads / 32;  // each has a token

__device__ inline float warp_sum(float x) {
  for (int m = 16; m > 0; m /= 2) x += __shfl_xor_sync(0xffffffffu, x, m);
  return x;
}

// A token that is ignored has the first column's logit for a shift.
extern "C" __global__ void __launch_bounds__(kScaledRowsThreads)
    pick_targets(const CrossEntropyParams p, const ScaledRowsParams s) {
  begin_early();
  const long long token = static_cast<long long>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (token == 0 && lane == 0) *s.redo = 0;
  if (token >= s.n) return;
  const long long target = id_at(p.targets, token * p.target_stride);
  const bool is_picked = is_picked_of(p, target);
  const u16* w = s.w + (is_picked ? target : 0) * s.d;
  float sum = 0;
#pragma unroll 4
  for (long long i = lane * kEach; i < s.d; i += 32 * kEach) {
    const Eight a(*reinterpret_cast<const uint4*>(s.x + token * s.d + i), kEach);
    const Eight b(*reinterpret_cast<const uint4*>(w + i), kEach);
#pragma unroll
    for (int e = 0; e < kEach; ++e) sum = __fmaf_rn(a.at[e], b.at[e], sum);
  }
  sum = warp_sum(sum);
  if (lane != 0) return;
  p.picked[token * p.picked_stride] = is_picked ? sum : 0.f;
  s.shift[token] = sum * kLog2e;
}

extern "C" __global__ void __launch_bounds__(kScaledRowsThreads)
    scale_rows(const CrossEntropyParams p, const ScaledRowsParams s) {
  begin_early();
  const long long token = static_cast<long long>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (token >= s.n) return;
  const float* sums = s.sums + token * s.n_sums;
  float total = 0;
#pragma unroll 8
  for (int i = lane; i < s.n_sums; i += 32) total += sums[i];
  total = warp_sum(total);
  const float dlse = p.dlse[token * p.dlse_stride], dpicked = p.dpicked[token * p.dpicked_stride];
  const bool stands =
      total > kLeastTotal && total < kMostTotal && fabsf(dpicked) <= kMostRatio * fabsf(dlse);
  const float scale = stands ? dlse / total : 1.f;
  if (lane == 0) {
    const long long target = id_at(p.targets, token * p.target_stride);
    p.lse[token * p.lse_stride] = s.shift[token] * kLn2 + logf(total);
    s.total[token] = stands ? total : __uint_as_float(0x7fffffffu);
    s.scale[token] = scale;
    count_flops(2);
    if (!stands) *s.redo = 1;
    u16* e = p.logits + token * p.row + target;
    if (stands && dlse != 0 && is_picked_of(p, target)) {  // in the row's scale
      const float x = __fmaf_rn(dpicked / dlse, total, element_to_float(*e));
      *e = static_cast<u16>(pack_element(x, 0.f));
    }
  }
  for (long long i = lane * kEach; i < s.d; i += 32 * kEach) {
    const long long at = token * s.d + i;
    Eight x(*reinterpret_cast<const uint4*>(s.x + at), kEach);
#pragma unroll
    for (int e = 0; e < kEach; ++e) x.at[e] *= scale;
    *reinterpret_cast<uint4*>(s.scaled_x + at) = x.packed();
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    redo_rows(const CrossEntropyParams p, const ScaledRowsParams s) {
  extern __shared__ uint4 ring[];
  begin_early();
  if (*s.redo == 0) return;
  for (long long token = blockIdx.x; token < s.n; token += gridDim.x) {
    if (s.total[token] == s.total[token]) continue;
    run_row(p, token, ring);
    __syncthreads();
  }
}
#endif

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
