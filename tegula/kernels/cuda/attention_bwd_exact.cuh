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

  // The delta of a query, given Σ o · do less the gradient of its lse.
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
#pragma unroll 1
    for (int c = int(threadIdx.x % 32); c < p.head_dim; c += 32)
      bad |= !(fabsf(element_to_float(row[c])) < -kNegativeInfinity);
    return !__any_sync(0xffffffff, bad);
  }

  // A row of the queries or of the keys: one code for both, since it is compiled into every kernel
  // and next to never run.
  __device__ void make(bool of_query, int row, int own_head) const {
    Element* to[] = {row_of(of_query ? p.dq : p.dk, batch, row, own_head),
                     of_query ? nullptr : row_of(p.dv, batch, row, own_head)};
    if (is_finite(to[0]) && (of_query || is_finite(to[1]))) return;
    const int group = of_query ? 1 : p.group;
    const Sequence s = sequence(of_query, row);
    float first[kParts] = {}, dv[kParts] = {};
#pragma unroll 1
    for (int head = own_head * group; head < (own_head + 1) * group; ++head) {
      const AttentionScore score = scores(s, head);
      Range seen{0, 0};
      if (of_query)
        seen = score.keys(row);
      else if (s.k_end > s.k_begin)
        seen = score.queries(row);
#pragma unroll 1
      for (int other = seen.lo; other < seen.hi; ++other) {
        const int i = of_query ? row : other, j = of_query ? other : row;
        const float l = lse(i, head);
        if (l == kNegativeInfinity || !score.user_sees(i, j)) continue;
        const Pair x = pair(score, i, j, l, delta(i, head));
        add(first, x.d_score,
            of_query ? row_of(p.k, batch, j, head / p.group) : row_of(p.q, batch, i, head));
        if (!of_query) add(dv, x.weight, row_of(p.d_o, batch, i, head));
      }
    }
    put(first, p.scale, to[0]);
    if (!of_query) put(dv, 1.f, to[1]);
  }
};

// Any grid of 256 threads; a warp takes a row. Nothing where nothing leaks.
extern "C" __global__ void attention_bwd_repair(const AttentionBwdParams p) {
  if constexpr (kMayLeak) {
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
      ExactBwd{p, int(at / size / heads)}.make(of_query, row, head);
    }
  }
}

}  // namespace tegula::cuda
