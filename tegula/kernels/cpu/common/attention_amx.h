// Attention of bf16 operands in AMX's tiles: what its forward and backward share.
//
// Order "amx_kb512", forward: keys in chunks of 512 at absolute key indices, ascending. A score is
// a sum in the order "amx_pairs" (isa/amx.h) over d. In units of log2: t = score·(scale·log2 e).
// Per row: m, while it is -inf, becomes the largest t among the next 32 keys (at absolute indices)
// of which the row sees any. p = 2^(t - m) (0 where hidden, or m is -inf); where one
// of the 16 partial sums of the chunk's p exceeds 2^12, m becomes the chunk's largest t, l and o
// are multiplied with alpha = 2^(old m - m), and p is formed again; this is seldom. l += the lane16
// sum of p, n (treated as l is) += that of bf16(p), of which lane j of 16 takes 2j + 1, then 2j, of
// every 32; o += bf16(p)·v in tiles of 32 keys. At the end o·(1/n) + 0, so that a row's only key
// gives its v, and lse = m·ln 2 + log(l).
// Backward, "amx_pairs": p = 2^(t - lse·log2 e), delta a sum of do·o in that order, less dlse, ds =
// p·(do·v - delta); dv, dk and dq are sums of bf16(p)·do, bf16(ds)·q and bf16(ds)·k over tiles of
// 32, the last two times scale: dv and dk over query heads of the group, then over queries; dq over
// keys.
#pragma once

#include "tegula/kernels/cpu/common/attention.h"

namespace tegula::kernel {

inline constexpr int kAmxKeyChunk = 512;
inline constexpr int kAmxRowBlock = 128;  // queries of a forward task, or of a backward block
inline constexpr int kAmxKeyBlock = 128;  // keys of a backward block

// Tiles of 32 that `n` numbers fill.
constexpr int64_t amx_tiles(int64_t n) { return (n + 31) / 32; }

// Whether the forward or backward can be done in tiles: no change of the scores but the mask.
bool amx_attends(const AttentionCall& c);

// Packed keys of the forward: per 32 keys, transposed keys and values as tiles of b; then a word
// whose bits say which values are not finite (these are packed as 0).
inline int64_t amx_key_bytes(const AttentionCall& c) {
  return (amx_tiles(c.d) + amx_tiles(c.dv)) * 2048 + 64;
}

// Forward: panels of as many pairs as the threads are ever at (kAmxAttentionPanelBytes at most, or
// one pair's), and scratch per thread. Backward: for each thread scratch and room for one pair
// (keys packed, their gradients, and the queries', of one block of them where a thread is alone).
// Both: how far the pairs are. In bytes.
inline constexpr int64_t kAmxAttentionPanelBytes = int64_t{8} << 20;
struct AmxAttentionWorkspace {
  int64_t thread_bytes = 0;
  AmxAttentionWorkspace(const AttentionCall& c, bool is_backward);
  int64_t pair_bytes(int n_threads) const {
    return keys_bytes_ + (n_threads > 1 ? row_blocks_ : 1) * dq_bytes_;
  }
  int64_t panel_bytes(int n_threads) const {
    const int64_t enough = std::min(pairs_, PairPanels::most_slots(n_threads)) * pair_panels_;
    return std::min(enough, std::max(pair_panels_, kAmxAttentionPanelBytes));
  }
  // Pairs whose panels are held at once.
  int64_t slots(int n_threads) const {
    return pair_panels_ == 0 ? 0 : panel_bytes(n_threads) / pair_panels_;
  }
  int64_t bytes(int n_threads) const {
    const int64_t panel_ints = pair_panels_ == 0 ? 0 : PairPanels::state_ints(pairs_, n_threads);
    return panel_bytes(n_threads) + (thread_bytes + pair_bytes(n_threads)) * n_threads +
           4 * (panel_ints + grid_ints_);
  }

 private:
  int64_t keys_bytes_ = 0, dq_bytes_ = 0, row_blocks_ = 0;
  int64_t pairs_ = 0, pair_panels_ = 0, grid_ints_ = 0;
};

}  // namespace tegula::kernel
