// How dot_packed shares out a product of few rows: sizes only, never bits.
#pragma once

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cpu/common/dot_plan.h"

namespace tegula::kernel {

// Where n is contiguous, a shard of k is one run of memory: threads share out shards, not columns.
// Between rows of a shard's sums:
constexpr int64_t thin_shard_row(int64_t n) { return round_up(n, kMaxTileN); }
// The floats of all shards' sums, which stand behind the panels of a instead of all else.
inline int64_t thin_shard_floats(const Contraction& c) {
  if (c.k_shards == 1 || c.batch.count != 1 || c.n.count < kThinColumns) return 0;
  return c.k_shards * std::min<int64_t>(c.m.count, kThinRows) * thin_shard_row(c.n.count);
}

// Bytes that few rows take: as floats, and sums of shards. Whatever machine a plan is run on.
inline int64_t thin_bytes(const Contraction& c, const Tuning& tuning) {
  const int64_t a_floats = std::max(DotWorkspace(c, DotTiles(tuning, c, false)).a_floats,
                                    DotWorkspace(c, DotTiles(tuning, c, true)).a_floats);
  return 4 * (a_floats + thin_shard_floats(c));
}

// The workspace of dot_packed, for many rows or few.
inline int64_t packed_bytes(const Contraction& c, const Tuning& tuning, int n_threads) {
  int64_t bytes = thin_bytes(c, tuning);
  for (const bool is_small_l2 : {false, true})
    bytes = std::max(bytes, DotWorkspace(c, DotTiles(tuning, c, is_small_l2)).bytes(n_threads));
  return bytes;
}

}  // namespace tegula::kernel
