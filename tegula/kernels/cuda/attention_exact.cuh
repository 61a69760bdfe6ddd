// One row of O by one warp, key by key, reading visible keys only: for rows that came out not
// finite. A masked weight is 0, but 0 · NaN is NaN in a product of tiles, so values that a row must
// not see could reach it; rows are checked when they are done, which costs next to nothing, and
// this is for those that fail. Rows that are truly not finite come out so again.
#pragma once

#include "tegula/kernels/cuda/attention_score.cuh"

namespace tegula::cuda {

__device__ inline float warp_sum(float x) {
  for (int m = 16; m > 0; m /= 2) x += __shfl_xor_sync(0xffffffff, x, m);
  return x;
}

template <class T = Element>
__device__ inline T* row_of(const AttentionTensor& t, int batch, int row, int head) {
  return reinterpret_cast<T*>(t.data) + batch * t.batch + row * t.row + head * t.head;
}

// The same of a sequence's key or value.
template <class T = Element>
__device__ inline T* row_of_key(const AttentionFeatureParams& f, const AttentionTensor& t,
                                const Sequence& s, int batch, int key, int head) {
#if TEGULA_PAGED
  return reinterpret_cast<T*>(t.data) + place_in_pages(f, s, t, key) + head * t.head;
#else
  return row_of<T>(t, batch, key, head);
#endif
}

// The sequence of a row of packed queries or keys.
__device__ inline Sequence sequence_of_row(const AttentionFeatureParams& f, bool of_query, int row,
                                           int seqlen_q, int seqlen_k) {
  Sequence s{0, seqlen_q, 0, seqlen_k};
  if constexpr (kIsPacked) {
    const int* offsets = of_query ? f.cu_seqlens_q : f.cu_seqlens_k;
    int part = 0;
    while (part <= f.n_sequences &&
           part_begin(offsets, f.n_sequences, of_query ? seqlen_q : seqlen_k, part + 1) <= row)
      ++part;
    s = sequence_of_part(f, part, seqlen_q, seqlen_k);
    if (sees_nothing(f, part)) s.q_end = s.q_begin, s.k_end = s.k_begin;
  }
  return s;
}

// Query i of the head that `score` is of, given about its lse; put(column, value) takes the
// results. Weights are shares of their own sum: relative to the lse alone, its rounding would be in
// all of them (and of e4m3 the tensor cores' lse has some 14 bits).
template <int kD, class Put>
__device__ inline void attend_exactly(const AttentionParams& p, const AttentionScore& score, int i,
                                      float lse, Put put) {
  constexpr int kPart = kD / 32;
  const int lane = int(threadIdx.x % 32), kv_head = score.head / p.group;
  const InElement* q = row_of<InElement>(p.q, score.batch, i, score.head);
  const float factor = AttentionScore::factor(score.scale);
  float out[kPart] = {}, sum = 0.f;
  if constexpr (kHasSinks) sum = exp2_approx((p.f.sinks[score.head] - lse) * kLog2e);
  const Range seen = score.keys(i);
#pragma unroll 1
  for (int j = seen.lo; j < seen.hi; ++j) {
    if (!score.user_sees(i, j)) continue;
    const InElement* k = row_of_key<InElement>(p.f, p.k, score.s, score.batch, j, kv_head);
    const InElement* v = row_of_key<InElement>(p.f, p.v, score.s, score.batch, j, kv_head);
    float raw = 0.f;
#pragma unroll 1
    for (int e = lane; e < p.head_dim; e += 32)
      raw = __fmaf_rn(element_to_float(q[e]), element_to_float(k[e]), raw);
    float weight = exp2_approx((score(warp_sum(raw), i, j) * factor - lse) * kLog2e);
    sum += weight;
    if constexpr (kHasDropout) weight = score.keeps(i, j) ? weight * p.f.keep_factor : 0.f;
#pragma unroll
    for (int e = 0; e < kPart; ++e) {
      const int column = lane + 32 * e;
      if (column < p.head_dim) out[e] = __fmaf_rn(weight, element_to_float(v[column]), out[e]);
    }
  }
  const float share = sum == 0.f ? 0.f : 1.f / sum;
#pragma unroll
  for (int e = 0; e < kPart; ++e) put(lane + 32 * e, out[e] * share);
}

}  // namespace tegula::cuda
