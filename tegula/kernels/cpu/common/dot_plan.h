// How dot_packed cuts a contraction into blocks: sizes only, never bits.
#pragma once

#include "tegula/kernels/cpu/common/contraction.h"

namespace tegula::kernel {

// The workspace must not depend on the instruction set (plans travel), so these bound all of them.
inline constexpr int kMaxTileM = 14;     // rows of a register tile
inline constexpr int kMaxTileN = 32;     // its columns
inline constexpr int64_t kBlockK = 384;  // a strip of b (tile_n × kBlockK) stays in L1
inline constexpr int64_t kBlockM = 168;  // a block of a (kBlockM × kBlockK) stays in L2
inline constexpr int64_t kBlockN = 384;
inline constexpr int64_t kPanelFloats = int64_t{1} << 20;  // panels of one operand held at once
inline constexpr int64_t kPanelSlack = 16;                 // floats after each panel of a

// The cut of k into blocks that stay in cache: pieces of one shard, or groups of whole shards.
struct KBlocks {
  int64_t shard_k = 0;
  int64_t n_shards = 1;
  int64_t n_pieces = 1;  // per shard
  int64_t piece_k = 0;   // the last piece of a shard may be shorter
  int64_t group = 1;     // shards per block, a power of two; 1 where n_pieces > 1

  explicit KBlocks(const Contraction& c);
  int64_t count() const { return n_shards * n_pieces / group; }
  int64_t block_k() const { return n_pieces > 1 ? piece_k : group * shard_k; }
  // Partial sums that wait in the shard tree: the lowest levels within a block, the others between
  // blocks (with one more for a chain cut into pieces), as so many tiles.
  int local_levels() const { return log2(group); }
  int slots() const {
    return count() == 1 ? 0 : log2(n_shards) - log2(group) + (n_pieces > 1 ? 1 : 0);
  }
  static int log2(int64_t n) { return n <= 1 ? 0 : 1 + log2(n / 2); }
};

// Workspace: panels of a, panels of b, and per thread a strip of b and the tiles that wait between
// k blocks. It grows with every extent, because a run may be smaller than its plan.
struct DotWorkspace {
  int64_t a_floats = 0;
  int64_t b_floats = 0;
  int64_t thread_floats = 0;
  explicit DotWorkspace(const Contraction& c);
  int64_t bytes(int n_threads) const {
    return 4 * (a_floats + b_floats + thread_floats * n_threads);
  }
};

// Rows of b are packed by the task that uses them when all of m is one block.
inline bool packs_b_locally(const Contraction& c) { return c.m.count <= kBlockM; }

// Strips of b that a task packs at once: a row of k is then read in runs of a few cache lines.
inline constexpr int64_t kLocalStrips = 4;
inline int64_t local_b_floats(const Contraction& c, int tile_n) {
  if (!packs_b_locally(c)) return 0;
  const int64_t k = c.k.count < kBlockK ? c.k.count : kBlockK;
  return kLocalStrips * tile_n * ((k + 15) / 16 * 16);
}

// The blocks of one launch on tiles of tile_m × tile_n.
struct DotBlocks {
  int64_t batch = 0, m = 0, n = 0;  // whose panels are held at once
  int64_t task_m = 0, task_n = 0;   // one task: task_m × task_n outputs
  DotBlocks(const Contraction& c, const DotWorkspace& w, int tile_m, int tile_n, int n_threads);
};

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

}  // namespace tegula::kernel
