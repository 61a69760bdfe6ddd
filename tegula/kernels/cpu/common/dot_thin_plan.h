// How dot_packed shares out a product of few rows: sizes only, never bits.
#pragma once

#include <algorithm>

#include "tegula/kernels/cpu/common/dot_plan.h"

namespace tegula::kernel {

// Where n is contiguous, a shard of k is one run of memory: threads share out shards, not columns.
// Between rows of a shard's sums:
constexpr int64_t thin_shard_row(int64_t n) { return round_up(n, kMaxTileN); }
// Of all shards' sums, which stand behind the panels of a instead of all else.
inline int64_t thin_shard_floats(const Contraction& c) {
  if (c.k_shards == 1 || c.batch.count != 1 || c.n.count < kThinColumns) return 0;
  return c.k_shards * std::min<int64_t>(c.m.count, kThinRows) * thin_shard_row(c.n.count);
}

// The workspace of dot_packed, for many rows or few, whatever machine a plan is run on.
inline int64_t packed_bytes(const Contraction& c, const Tuning& tuning, int n_threads) {
  int64_t bytes = 0;
  for (const bool is_small_l2 : {false, true}) {
    const DotWorkspace w(c, DotTiles(tuning, c, is_small_l2));
    bytes = std::max({bytes, w.bytes(n_threads), 4 * (w.a_floats + thin_shard_floats(c))});
  }
  return bytes;
}

}  // namespace tegula::kernel
