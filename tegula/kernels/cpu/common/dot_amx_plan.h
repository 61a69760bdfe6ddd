// How dot_amx cuts a contraction into blocks: sizes only, never bits.
#pragma once

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cpu/common/dot_plan.h"
#include "tegula/kernels/cpu/common/k_blocks.h"

namespace tegula::kernel {

inline constexpr int64_t kAmxStrip = 32;         // rows or columns of two tiles
inline constexpr int64_t kAmxStripBytes = 2048;  // of a strip, per 32 k
inline constexpr int64_t kAmxBlockTiles = 16;    // 32 k each: a strip of b stays in L1
inline constexpr int64_t kAmxPassTiles = 96;     // of blocks in turn: a task's rows stay in L2
inline constexpr int64_t kAmxBlockM = 256;       // rows of a task
inline constexpr int64_t kAmxBlockN = 512;
inline constexpr int64_t kAmxPanelBytes = int64_t{8} << 20;  // of one operand held at once

// A result of so many bytes is streamed past the caches, unless many threads do it at once.
inline constexpr int64_t kAmxStreamBytes = int64_t{1} << 20;
inline constexpr int kAmxStreamThreads = 2;

// k in tiles of 32, each shard padded to whole tiles.
inline KBlocks amx_cut(const Contraction& c, int64_t most = kAmxBlockTiles) {
  return {c.k_shards, (c.shard_k() + 31) / 32, most};
}

// The blocks of a pass over a task's columns.
inline int64_t amx_pass_blocks(const KBlocks& cut) {
  return ceil_div(cut.count(), std::max<int64_t>(1, ceil_div(cut.total(), kAmxPassTiles)));
}

// So many threads pack b for themselves, a block of a strip beside the products of the one before:
// no thread waits for panels, and no line is written that other cores have read. Tasks are small,
// since cores differ.
inline constexpr int kAmxOwnThreads = 8;
inline constexpr int64_t kAmxOwnTiles = 24;                // of k: two blocks, and sums, stay in L1
inline constexpr int64_t kAmxOwnBytes = int64_t{1} << 20;  // of a task's rows: they stay in L2
inline constexpr int64_t kAmxOwnM = 512;                   // of them, at most
inline KBlocks amx_own_cut(const Contraction& c) { return amx_cut(c, kAmxOwnTiles); }

// Workspace: panels of a, panels of b, and per thread a strip of b and sums that wait; or, instead
// of b's panels, per thread two blocks of a strip of b. It grows with every extent, because a run
// may be smaller than its plan.
struct AmxDotWorkspace {
  int64_t a_bytes = 0, b_bytes = 0, thread_bytes = 0;
  int64_t own_bytes = 0;  // per thread that packs b for itself
  explicit AmxDotWorkspace(const Contraction& c);
  int64_t bytes(int n_threads) const {
    const int64_t own = n_threads < kAmxOwnThreads ? 0 : own_bytes * n_threads;
    return a_bytes + std::max(b_bytes + thread_bytes * n_threads, own);
  }
};

// The workspace of dot_amx, for many rows or few (isa/dot_thin_tasks.h).
int64_t amx_dot_bytes(const Contraction& c, int n_threads);

// A strip of b is packed by the task that uses it when all of m is one block.
inline bool amx_packs_b_locally(const Contraction& c) { return c.m.count <= kAmxBlockM; }

// Fewer threads copy even an a whose rows could be read where they lie, if so many columns use it:
// tiles whose rows follow each other come faster out of L2.
inline constexpr int64_t kAmxCopyN = 1024;
inline bool amx_copies_a(const Contraction& c, int n_threads) {
  return n_threads < kAmxOwnThreads && c.m.count > kAmxBlockM && c.n.count >= kAmxCopyN;
}

// Where all of k is one task's, if b outweighs what of a must be packed by all.
inline bool amx_is_own(const Contraction& c, bool packs_a, int n_threads) {
  return n_threads >= kAmxOwnThreads && amx_cut(c).total() <= kAmxPassTiles &&
         c.m.count > kAmxBlockM && (!packs_a || c.n.count >= c.m.count);
}

// The blocks of one launch.
struct AmxDotBlocks {
  int64_t batch = 0, m = 0, n = 0;                   // whose panels are held at once
  int64_t task_m = 0, task_n = 0;                    // one task: task_m × task_n outputs, at most
  int64_t strip_m = kAmxStrip, strip_n = kAmxStrip;  // what they are multiples of
  int64_t m_tasks(int64_t rows) const { return ceil_div(rows, task_m); }
  int64_t n_tasks(int64_t cols) const { return ceil_div(cols, task_n); }
  AmxDotBlocks(const Contraction& c, const AmxDotWorkspace& w, bool is_own, int n_threads);
};

}  // namespace tegula::kernel
