// An `attention` or `attention_bwd` call as plain numbers, shared by the CPU kernels.
//
// Order "kb64": keys in spans of 512 and blocks of 64 at absolute key indices, ascending; each span
// begins with m = -inf, l_i = 0, o = 0. A score is one fma chain over d, times scale, then softcap,
// bias, alibi as the op says. Per row and block with a visible key: m, where -inf, becomes the
// block's largest score; p = e^(score - m), 0 where hidden. Where one of the 16 sums p_i + p_(i+16)
// + ... exceeds 2^8, m becomes the block's largest score, l_i and o are multiplied with alpha =
// e^(old m - m), and p is formed again; this is seldom [lazy rescaling, as FlashAttention-4 does
// it]. The sums are added to l_i, and o = fma(p_j, v_j, o), j ascending. Here e^x is
// 2^(x·log2(e)), where scores are plain that of the products' difference times scale·log2(e).
// Blocks that a row cannot see do not touch it; a span's l is the lane16 sum of l_i. Spans are
// folded together, ascending, from the same beginnings: M' = max(M, m), O = fma(o, exp(m - M'),
// O·exp(M - M')), L alike, so that threads may take a span each. At the end O·(1/L) + 0 (so that a
// zero has one sign) and lse = log(L) + M. A row without visible keys gives o = 0, lse = -inf. What
// goes on from an o and an lse begins with O = o, M = lse, L = 1 (0 where lse = -inf).
//
// Order of the backward, "fma_chain": p = 2^((score - lse)·log2(e)), the difference an fma with
// scale where scores are plain; delta is one fma chain do·o, less dlse; ds = p·(dp - delta); dq and
// dk (times scale at the end) and dv are single chains over visible tiles: dq over keys ascending;
// dk and dv over query heads of the group, then over queries.
#pragma once

#include "tegula/base/algorithm.h"
#include "tegula/base/position_runs.h"
#include "tegula/kernels/cpu/common/contraction.h"
#include "tegula/kernels/cpu/common/pair_panels.h"

namespace tegula::kernel {

inline constexpr int kKeyBlock = 64;
inline constexpr int kKeySpan = 512;
inline constexpr int kRowBlock = 84;  // queries at a time; a multiple of every register tile's rows

struct AttentionCall {
  const TensorRef *q, *k, *v;
  const TensorRef *o = nullptr, *lse = nullptr, *d_o = nullptr;  // backward
  const TensorRef *bias = nullptr, *alibi = nullptr, *cu_q = nullptr, *cu_k = nullptr;
  const TensorRef *seed = nullptr, *dlse = nullptr;
  const TensorRef* descale[3] = {};                            // of q, k and v in e4m3
  const TensorRef *o_before = nullptr, *lse_before = nullptr;  // of the parts of the keys before
  bool is_part = false;                                        // results are in f32
  // Keys in pages: how many each sequence has, where they are (common/attention_pages.h).
  const TensorRef *seqlens_k = nullptr, *table = nullptr;
  int64_t page = 0;      // keys of one; 0: those of a batch entry lie side by side
  int64_t sequence = 0;  // in pages: whose keys are those of batch entry 0
  int64_t batch, n_q, n_k, n_heads, n_kv_heads, group, d, dv;
  float scale, softcap;
  bool is_causal;
  int64_t left, right;  // -1: any
  int64_t q_offset, k_offset;
  PositionRuns q_runs, k_runs;  // of several runs, instead
  double dropout;
  uint64_t stream;
  int64_t origin[4] = {};
  int64_t whole[3];

  // Scores are products times a positive scale: their order is the products' own. (The bound: a
  // reciprocal of the scale is formed.)
  bool has_plain_scores() const { return !has_extras() && scale > 0x1p-100f; }
  // The unit that the kernels' scores are multiples of until they are weighed.
  float unit() const { return has_plain_scores() ? scale : 1.0f; }
  // The type of o, and of gradients.
  DType result_type() const { return is_part ? DType::kF32 : q->dtype; }
  bool has_runs() const { return !q_runs.is_one() || !k_runs.is_one(); }
  bool has_extras() const { return softcap > 0 || bias != nullptr || alibi != nullptr; }
  // Whether every query has a bias of its own, hence no part of its gradient is a sum.
  bool owns_bias() const {
    return bias != nullptr && bias->shape[0] == batch && bias->shape[1] == n_heads &&
           bias->shape[2] == n_q;
  }
  // Where key or value j of a batch entry and head lies; those after it in its block of kKeyBlock
  // follow, stride[1] apart.
  int64_t key_offset(const TensorRef& t, int64_t b, int64_t j, int64_t h) const {
    if (page == 0) return b * t.stride[0] + j * t.stride[1] + h * t.stride[2];
    const int64_t at = (sequence + b) * table->stride[0] + j / page * table->stride[1];
    const int64_t entry = std::clamp<int64_t>(table->as<int32_t>()[at], 0, t.shape[0] - 1);
    return entry * t.stride[0] + j % page * t.stride[1] + h * t.stride[2];
  }
  int64_t score_flops() const {
    return 1 + (softcap > 0 ? 3 : 0) + (bias != nullptr ? 1 : 0) + (alibi != nullptr ? 2 : 0);
  }
};

// The options that a kernel takes besides plain operands.
struct AttentionTakes {
  bool e4m3 = false, pages = false;
  bool parts = false;        // of keys
  bool narrow_keys = false;  // bf16 or f16, and values alike, beside queries in f32
};
// For keys in pages, n_k is what a sequence has room for.
Result<AttentionCall> parse_attention(const Attrs& attrs, std::span<const TensorRef> in,
                                      bool is_backward, const AttentionTakes& takes = {});
inline constexpr AttentionTakes kTakesPages = {.pages = true};
inline constexpr AttentionTakes kTakesParts = {.pages = true, .parts = true};
inline constexpr AttentionTakes kDecodes = {.pages = true, .narrow_keys = true};
inline constexpr AttentionTakes kTakesAll = {.pages = true, .parts = true, .narrow_keys = true};

// A row begins with (o, lse) of the keys before it. This is the lse, -inf where there is none.
inline float lse_before(const AttentionCall& c, int64_t b, int64_t h, int64_t i) {
  const TensorRef* t = c.lse_before;
  return t == nullptr ? -__builtin_inff()
                      : t->as<float>()[b * t->stride[0] + h * t->stride[1] + i * t->stride[2]];
}
// Elements [e, e + n) of its o.
inline void copy_o_before(const AttentionCall& c, int64_t b, int64_t i, int64_t h, int64_t e,
                          int64_t n, float* to) {
  const TensorRef& t = *c.o_before;
  const float* o = t.as<float>() + b * t.stride[0] + i * t.stride[1] + h * t.stride[2];
  for (int64_t k = 0; k < n; ++k) to[k] = o[(e + k) * t.stride[3]];
}
// The work that a row that sees a key does at its end, and where it goes on from others.
inline int64_t flops_of_row(const AttentionCall& c) {
  return 3 + c.dv + (c.o_before == nullptr ? 0 : 11 + 3 * c.dv);
}

// The keys [lo, hi) that query i sees; position - j is the distance to key j.
struct KeyRange {
  int64_t lo = 0, hi = 0;
  int64_t position = 0;
  int64_t count() const { return hi > lo ? hi - lo : 0; }
};
// Those of its sequence, before masks by position.
KeyRange sequence_keys(const AttentionCall& c, int64_t i);
// The keys of rows whose positions are runs.
KeyRange keys_in_runs(const AttentionCall& c, int64_t i);
// In registers for a plain batch: through memory, the range would be read before it has got there.
inline KeyRange visible_keys(const AttentionCall& c, int64_t i) {
  if (c.has_runs()) return keys_in_runs(c, i);
  KeyRange r =
      c.cu_q == nullptr ? KeyRange{0, c.n_k, i + c.q_offset - c.k_offset} : sequence_keys(c, i);
  if (c.is_causal) r.hi = std::min(r.hi, r.position + 1);
  if (c.left >= 0) r.lo = std::max(r.lo, r.position - c.left);
  if (c.right >= 0) r.hi = std::min(r.hi, r.position + c.right + 1);
  r.lo = std::max<int64_t>(r.lo, 0), r.hi = std::min(r.hi, c.n_k);
  return r;
}

// Workspace (of keys in pages: of a sequence alone). Forward: panels of as many pairs as the
// threads are ever at (kAttentionPanelFloats of a thread at most, or one pair's), spans to be
// folded where these are shared out, and scratch per thread. Backward: for each thread its scratch,
// and room for one pair: panels of keys, gradients of keys and queries. Both: how far the pairs
// are.
inline constexpr int64_t kAttentionPanelFloats = int64_t{1} << 19;
inline constexpr int64_t kBiasKeys = 4 * kKeyBlock;  // that a task of a broadcast bias sums at once
struct AttentionWorkspace {
  int64_t pair_floats = 0, thread_floats = 0;
  AttentionWorkspace(const AttentionCall& c, bool is_backward);
  int64_t bytes(int n_threads) const {
    return 4 * (panel_floats(n_threads) + part_floats(n_threads) +
                (pair_floats + thread_floats) * n_threads + state_ints(n_threads));
  }
  // Whether spans are tasks of their own: so many blocks of rows would leave threads idle.
  bool splits(int64_t row_blocks, int n_threads) const {
    return n_threads > 1 && spans_ > 1 && row_blocks < 2 * n_threads;
  }
  int64_t panel_floats(int n_threads) const {
    const int64_t enough = std::min(pairs_, PairPanels::most_slots(n_threads)) * pair_panels_;
    return std::min(enough, std::max(pair_panels_, kAttentionPanelFloats * n_threads));
  }
  // Pairs whose panels are held at once.
  int64_t slots(int n_threads) const {
    return pair_panels_ == 0 ? 0 : panel_floats(n_threads) / pair_panels_;
  }
  int64_t state_ints(int n_threads) const {
    return grid_ints_ + (pair_panels_ == 0 ? 0 : PairPanels::state_ints(pairs_, n_threads));
  }
  int64_t row_floats() const { return row_floats_; }  // of one block of rows and one span
  int64_t part_floats(int n_threads) const {
    return n_threads > 1 && spans_ > 1
               ? std::min<int64_t>(row_blocks_, 2 * n_threads) * spans_ * row_floats_
               : 0;
  }

 private:
  int64_t row_blocks_ = 0, spans_ = 0, row_floats_ = 0;
  int64_t pairs_ = 0, pair_panels_ = 0, grid_ints_ = 0;
};

// Panels of one block of 64 keys: transposed keys [d] and values [64], in strips of columns.
inline int64_t key_block_floats(const AttentionCall& c) {
  return kKeyBlock * (c.d + (c.dv + 31) / 32 * 32);
}

}  // namespace tegula::kernel
