// The memory that attention_decode takes, and its calls.
//
// Order "amx_kb64": as "kb64" (common/attention.h) but for scores, whose sums over d are in the
// order "amx_pairs" (isa/amx.h).
#pragma once

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cpu/common/attention.h"
#include "tegula/kernels/cpu/common/dot_plan.h"

namespace tegula::kernel {

inline constexpr int kMaxDecodeGroup = 8;  // query heads of a key head
inline constexpr int kMaxDecodeWidth = 256;

// One query, and scores as they come.
inline bool has_one_query(const AttentionCall& c) {
  return c.n_q == 1 && c.group <= kMaxDecodeGroup && c.dv <= kMaxDecodeWidth &&
         c.has_plain_scores() && c.dropout == 0 && c.cu_q == nullptr;
}
// The same, and the heads of a key or value lie side by side.
inline bool is_decode(const AttentionCall& c) {
  const auto lies_by_key = [&](const TensorRef& t, int64_t width) {
    return t.stride[3] == 1 && (c.n_kv_heads == 1 || t.stride[2] == width);
  };
  return has_one_query(c) && lies_by_key(*c.k, c.d) && lies_by_key(*c.v, c.dv);
}

// The keys that a sequence's query sees, how many of them there are in all, and their spans:
// `before` of them are those of the sequences before it.
struct DecodeKeys {
  KeyRange seen;
  int64_t n_k, first_span, spans, before;
};

// The sequences' keys, then floats of the spans' sums, a row each, and of a thread's scratch.
struct DecodeWorkspace {
  int64_t key_floats = 0, part_floats = 0, thread_floats = 0;
  explicit DecodeWorkspace(const AttentionCall& c) : dv_(round_up(c.dv, kMaxTileN)) {
    key_floats = round_up(c.batch * static_cast<int64_t>(sizeof(DecodeKeys)) / 4, 16);
    part_floats =
        round_up(c.batch * c.n_heads * (ceil_div(c.n_k, kKeySpan) + 1) * row_floats(), 16);
    // Whose queries it holds; of each head: query, scores, sums, m and lanes of l. Queries in tiles
    // take 8 floats for an element, whatever the group.
    thread_floats = c.n_heads * (kKeyBlock + dv_ + 1 + 16) + c.n_kv_heads * kPanelSlack;
    thread_floats += c.n_kv_heads * c.d * std::max<int64_t>(c.group, 8);
    thread_floats = round_up(thread_floats + 6 * 16, 16);
  }
  int64_t row_floats() const { return dv_ + 16; }
  int64_t bytes(int n_threads) const {
    return 4 * (key_floats + part_floats + thread_floats * n_threads);
  }

 private:
  int64_t dv_;
};
inline int64_t decode_workspace_bytes(const KernelQuery& q) {
  const auto c = parse_attention(*q.attrs, q.in, false, kDecodes);
  return c.ok() ? DecodeWorkspace(*c).bytes(q.target->n_threads) : 0;
}

}  // namespace tegula::kernel
