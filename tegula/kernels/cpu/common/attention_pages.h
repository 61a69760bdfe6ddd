// Attention whose keys lie in pages, one sequence after another: each is a call of its own, whose
// keys count from 0. Hence its bits are the same beside any others, in any pages.
#pragma once

#include <cmath>

#include "tegula/base/algorithm.h"
#include "tegula/base/half.h"
#include "tegula/kernels/cpu/common/attention.h"

namespace tegula::kernel {

// How many keys sequence s has.
inline int64_t sequence_keys_count(const AttentionCall& c, int64_t s) {
  const int64_t n = c.seqlens_k->as<int32_t>()[s * c.seqlens_k->stride[0]];
  return std::clamp<int64_t>(n, 0, c.n_k);
}

// Rows [from, to) of a tensor's dim.
inline TensorRef rows_of(TensorRef t, int dim, int64_t from, int64_t to) {
  t.data = static_cast<std::byte*>(t.data) + from * t.stride[dim] * size_bytes(t.dtype);
  t.shape[dim] = to - from;
  return t;
}

// o = 0 and lse = -inf, of queries [from, to) of a packed row.
inline void clear_queries(const KernelCall& call, int64_t from, int64_t to) {
  const TensorRef &o = call.out[0], &lse = call.out[1];
  const int64_t size = size_bytes(o.dtype);
  for (int64_t i = from; i < to; ++i)
    for (int64_t h = 0; h < o.shape[2]; ++h) {
      auto* row = static_cast<std::byte*>(o.data) + (i * o.stride[1] + h * o.stride[2]) * size;
      for (int64_t e = 0; e < o.shape[3]; ++e)
        std::fill_n(row + e * o.stride[3] * size, size, std::byte{0});
      lse.as<float>()[h * lse.stride[1] + i * lse.stride[2]] = -HUGE_VALF;
    }
}

// f(call, c) with the queries and results of each sequence that has queries; without pages once,
// with what was given.
template <class F>
void for_each_sequence(const KernelCall& call, const AttentionCall& c, const F& f) {
  if (c.page == 0) return f(call, c);
  const bool is_packed = c.cu_q != nullptr;
  int64_t n = std::min(c.seqlens_k->shape[0], c.table->shape[0]);
  if (is_packed) n = std::min(n, c.cu_q->shape[0] - 1);
  const auto offset = [&](int64_t s) {
    const int64_t at = c.cu_q->as<int32_t>()[s * c.cu_q->stride[0]];
    return std::clamp<int64_t>(at, 0, c.n_q);
  };
  int64_t done = 0;  // packed queries
  for (int64_t s = 0; s < n; ++s) {
    const int dim = is_packed ? 1 : 0;
    const int64_t from = is_packed ? std::max(offset(s), done) : s;
    const int64_t to = is_packed ? std::max(offset(s + 1), from) : s + 1;
    if (is_packed) clear_queries(call, done, from), done = to;
    const TensorRef q = rows_of(*c.q, dim, from, to);
    const TensorRef out[] = {rows_of(call.out[0], dim, from, to),
                             rows_of(call.out[1], is_packed ? 2 : 0, from, to)};
    if (q.shape[1] == 0) continue;
    AttentionCall one = c;
    one.q = &q, one.batch = 1, one.n_q = q.shape[1], one.cu_q = nullptr;
    one.n_k = sequence_keys_count(c, s), one.sequence = s;
    one.q_offset = one.n_k - one.n_q, one.k_offset = 0;
    KernelCall part = call;
    part.out = out;
    f(part, one);
  }
  if (is_packed) clear_queries(call, done, c.n_q);
}

}  // namespace tegula::kernel
