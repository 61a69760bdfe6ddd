// How dot_amx cuts a contraction into blocks: sizes only, never bits.
#pragma once

#include "tegula/kernels/cpu/common/dot_plan.h"
#include "tegula/kernels/cpu/common/k_blocks.h"

namespace tegula::kernel {

inline constexpr int64_t kAmxStrip = 32;         // rows or columns of two tiles
inline constexpr int64_t kAmxStripBytes = 2048;  // of a strip, per 32 k
inline constexpr int64_t kAmxBlockTiles = 96;    // 32 k each: a task's rows of a block stay in L2
inline constexpr int64_t kAmxBlockM = 256;  // rows of a task; they stay in L2 with a strip of b
inline constexpr int64_t kAmxBlockN = 512;
inline constexpr int64_t kAmxPanelBytes = int64_t{8} << 20;  // of one operand held at once

// A result of so many bytes is streamed past the caches, unless many threads do it at once.
inline constexpr int64_t kAmxStreamBytes = int64_t{1} << 20;
inline constexpr int kAmxStreamThreads = 2;

// k in tiles of 32, each shard padded to whole tiles.
inline KBlocks amx_cut(const Contraction& c) {
  return {c.k_shards, (c.shard_k() + 31) / 32, kAmxBlockTiles};
}

// Workspace: panels of a, panels of b, and per thread a strip of b and sums that wait. It grows
// with every extent, because a run may be smaller than its plan.
struct AmxDotWorkspace {
  int64_t a_bytes = 0, b_bytes = 0, thread_bytes = 0;
  explicit AmxDotWorkspace(const Contraction& c);
  int64_t bytes(int n_threads) const { return a_bytes + b_bytes + thread_bytes * n_threads; }
};

// A strip of b is packed by the task that uses it when all of m is one block.
inline bool amx_packs_b_locally(const Contraction& c) { return c.m.count <= kAmxBlockM; }

// The blocks of one launch.
struct AmxDotBlocks {
  int64_t batch = 0, m = 0, n = 0;                   // whose panels are held at once
  int64_t task_m = 0, task_n = 0;                    // one task: task_m × task_n outputs, at most
  int64_t strip_m = kAmxStrip, strip_n = kAmxStrip;  // what they are multiples of
  int64_t m_tasks(int64_t rows) const { return ceil_div(rows, task_m); }
  int64_t n_tasks(int64_t cols) const { return ceil_div(cols, task_n); }
  AmxDotBlocks(const Contraction& c, const AmxDotWorkspace& w, int n_threads);
};

}  // namespace tegula::kernel
