// Gradients row by row, reading visible pairs only, for rows that came out not finite. A masked
// weight is 0, but 0 · NaN is NaN in a product of tiles, so what a row must not see could reach it.
// Results are looked at where they are written, which costs next to nothing; only if one of them is
// not finite, attention_bwd_repair makes those rows again. Rows that are truly not finite come out
// so again.
#pragma once

#include "tegula/kernels/cuda/attention_bwd_before.cuh"

namespace tegula::cuda {

// Whether a tile may hold values that some of its rows do not see.
// (In f32 the parts of an infinite number are NaN.)
constexpr bool kMayLeak =
    kIsCausal || kHasWindow || kHasDocuments || kIsPacked || kHasUserMask || kBias != 0 || kIsF32;

// The derivatives of one pair.
struct Pair {
  float weight;   // after dropout: what multiplies dO in dV
  float d_score;  // of scale · q · k
};

struct ExactBwd {
  static constexpr int kParts = (TEGULA_HEAD_DIM + 31) / 32;
  const AttentionBwdParams& p;
  int batch;

  __device__ float dot(const Element* a, const Element* b) const {
    return warp_sum(lane_dot(a, b, p.head_dim));
  }

  __device__ Sequence sequence(bool of_query, int row) const {
    return sequence_of_row(p.f, of_query, row, p.seqlen_q, p.seqlen_k);
  }

  __device__ AttentionScore scores(const Sequence& s, int head) const {
    return AttentionScore(p.f, s, batch, head, p.n_heads_q, p.seqlen_q, p.seqlen_k, p.scale);
  }

  // Of a query, given Σ o · do less the gradient of its lse.
  __device__ float delta(int i, int head) const {
    const long long at = (static_cast<long long>(batch) * p.n_heads_q + head) * p.seqlen_q + i;
    const float sum = dot(row_of(p.o, batch, i, head), row_of(p.d_o, batch, i, head));
    return p.d_lse == nullptr ? sum : sum - p.d_lse[at];
  }
  __device__ float lse(int i, int head) const {
    return p.lse[(static_cast<long long>(batch) * p.n_heads_q + head) * p.seqlen_q + i];
  }

  __device__ Pair pair(const AttentionScore& score, int i, int j, float lse, float delta) const {
    const int head = score.head, kv_head = head / p.group;
    float slope;
    const float raw = dot(row_of(p.q, batch, i, head), row_of(p.k, batch, j, kv_head));
    const float x = score(raw, i, j, slope) * AttentionScore::factor(p.scale);
    const float weight = exp2_approx((x - lse) * kLog2e);
    const float dp = dot(row_of(p.d_o, batch, i, head), row_of(p.v, batch, j, kv_head));
    float kept = 1.f;
    if constexpr (kHasDropout) kept = score.keeps(i, j) ? p.f.keep_factor : 0.f;
    return {weight * kept, weight * slope * (kept * dp - delta)};
  }

  __device__ void add(float (&sum)[kParts], float factor, const Element* row) const {
#pragma unroll
    for (int e = 0; e < kParts; ++e) {
      const int column = int(threadIdx.x % 32) + 32 * e;
      if (column < p.head_dim) sum[e] = __fmaf_rn(factor, element_to_float(row[column]), sum[e]);
    }
  }
  __device__ void put(const float (&sum)[kParts], float factor, Element* row) const {
#pragma unroll
    for (int e = 0; e < kParts; ++e) {
      const int column = int(threadIdx.x % 32) + 32 * e;
      if (column < p.head_dim) row[column] = round_to_element(sum[e] * factor);
    }
  }
  __device__ bool is_finite(const Element* row) const {
    bool bad = false;
    for (int c = int(threadIdx.x % 32); c < p.head_dim; c += 32)
      bad |= !(fabsf(element_to_float(row[c])) < -kNegativeInfinity);
    return !__any_sync(0xffffffff, bad);
  }

  __device__ void query(int i, int head) const {
    Element* to = row_of(p.dq, batch, i, head);
    if (is_finite(to)) return;
    const AttentionScore score = scores(sequence(true, i), head);
    const float l = lse(i, head), d = l == kNegativeInfinity ? 0.f : delta(i, head);
    const Range seen = l == kNegativeInfinity ? Range{0, 0} : score.keys(i);
    float sum[kParts] = {};
#pragma unroll 1
    for (int j = seen.lo; j < seen.hi; ++j) {
      if (!score.user_sees(i, j)) continue;
      const Pair x = pair(score, i, j, l, d);
      add(sum, x.d_score, row_of(p.k, batch, j, head / p.group));
    }
    put(sum, p.scale, to);
  }

  __device__ void key(int j, int kv_head) const {
    Element *to_k = row_of(p.dk, batch, j, kv_head), *to_v = row_of(p.dv, batch, j, kv_head);
    if (is_finite(to_k) && is_finite(to_v)) return;
    const Sequence s = sequence(false, j);
    float dk[kParts] = {}, dv[kParts] = {};
#pragma unroll 1
    for (int head = kv_head * p.group; head < (kv_head + 1) * p.group; ++head) {
      const AttentionScore score = scores(s, head);
      const Range seen = s.k_end > s.k_begin ? score.queries(j) : Range{0, 0};
#pragma unroll 1
      for (int i = seen.lo; i < seen.hi; ++i) {
        const float l = lse(i, head);
        if (l == kNegativeInfinity || !score.user_sees(i, j)) continue;
        const Pair x = pair(score, i, j, l, delta(i, head));
        add(dk, x.d_score, row_of(p.q, batch, i, head));
        add(dv, x.weight, row_of(p.d_o, batch, i, head));
      }
    }
    put(dk, p.scale, to_k);
    put(dv, 1.f, to_v);
  }
};

// Any grid of 256 threads; a warp takes a row.
extern "C" __global__ void attention_bwd_repair(const AttentionBwdParams p) {
  if (*p.leaked == 0) return;
  const long long queries = static_cast<long long>(p.batch) * p.n_heads_q * p.seqlen_q;
  const long long keys = static_cast<long long>(p.batch) * p.n_heads_kv * p.seqlen_k;
  const long long step = gridDim.x * 8;
  for (long long n = blockIdx.x * 8 + threadIdx.x / 32; n < queries + keys; n += step) {
    const bool of_query = n < queries;
    const int size = of_query ? p.seqlen_q : p.seqlen_k;
    const int heads = of_query ? p.n_heads_q : p.n_heads_kv;
    const long long at = of_query ? n : n - queries;
    const int row = int(at % size), head = int(at / size % heads);
    const ExactBwd exact{p, int(at / size / heads)};
    if (of_query)
      exact.query(row, head);
    else
      exact.key(row, head);
  }
}

}  // namespace tegula::cuda
