// How dot_packed cuts a contraction into blocks: sizes only, never bits.
#pragma once

#include "tegula/base/algorithm.h"
#include "tegula/base/round.h"
#include "tegula/kernels/cpu/common/contraction.h"
#include "tegula/kernels/cpu/common/k_blocks.h"
#include "tegula/kernels/kernel.h"

namespace tegula::kernel {

// The largest of the fewest equal parts of `extent` that are at most `most`, in a multiple.
constexpr int64_t even_part(int64_t extent, int64_t most, int64_t multiple) {
  return round_up(ceil_div(extent, ceil_div(extent, most)), multiple);
}

// Parts of `strips`, at least so many, that `others` times make as many tasks for every thread,
// where there are strips enough.
int64_t even_parts(int64_t strips, int64_t least, int64_t others, int n_threads);

// Chains that fit the registers of an instruction set: rows × columns.
struct RegisterTile {
  int m, n;
};
constexpr RegisterTile register_tile(Isa isa) {
  if (isa >= Isa::kAvx512) return {14, 32};
  if (isa == Isa::kAvx2) return {6, 16};
  return {4, 8};
}

// The workspace of the rule must not depend on the instruction set, so these bound all of them.
inline constexpr int kMaxTileM = 14;
inline constexpr int kMaxTileN = 32;
inline constexpr int kMinTileM = 4;
inline constexpr int64_t kPanelSlack = 16;   // floats after each panel of a
inline constexpr int64_t kChunkSlack = 224;  // the same where its last chunk of k may be short
inline constexpr int64_t kPanelFloats = int64_t{1} << 20;  // panels of one operand held at once

// The knobs of dot_packed, in the order of a Tuning; 0: by rule.
enum DotKnob {
  kDotTaskM,   // rows and …
  kDotTaskN,   // … columns of the outputs that one task computes
  kDotBlockK,  // k that stays in cache
  kDotTileM,   // rows of a register tile
  kDotOrder,   // 1: strips of b stay in L1 while a streams; 2: strips of a while b streams
  kDotDeal,    // 1: tasks along rows of the output are neighbours; 2: along columns
  kDotPackA,   // 1: a is read where it lies, if it can be; 2: it is copied or packed
  kDotPanels,  // floats of b's panels that are held at once
  kDotKnobs
};

// Whether a core's second cache is less than 1 MiB.
bool has_small_l2();

// The sizes that a tuning gives, or the rule's.
struct DotTiles {
  // Where all rows are one task's, tasks pack strips of b for themselves; these stay in L1 (tile_n
  // × block_k), and a block of a (task_m × block_k) in L2.
  static constexpr int64_t kLocal[] = {168, 384, 384};
  // Else b lies in panels. Sums that wait between blocks of k cost more than strips of b that come
  // from L2, where one stays with a block of a: hence few blocks.
  static constexpr int64_t kShared[] = {84, 1024, 2048};
  static constexpr int64_t kSharedSmall[] = {36, 1024, 1024};  // where L2 is small
  int64_t task_m = kLocal[0], task_n = kLocal[1], block_k = kLocal[2];
  // The sizes that a run with fewer rows may have.
  int64_t local_m = kLocal[0], local_n = kLocal[1], local_k = kLocal[2];
  int tile_m = 0;        // 0: the instruction set's
  bool a_inside = true;  // strips of a are the inner loop
  bool deals_rows = true;
  int reads_a = 0;  // 1: where it lies, if it can be; 2: never; 0: as many columns pay for a copy
  int64_t panel_floats = kPanelFloats;
  // Tasks are as large as that; by rule they are cut until every thread has some.
  bool is_fixed = false;

  DotTiles(const Tuning& t, const Contraction& c, bool is_small_l2 = has_small_l2());
  // Within what the kernel can do: a plan from a file may ask for anything.
  static bool is_valid(const Tuning& t);
  bool is_local(const Contraction& c) const { return c.m.count <= local_m; }
  bool packs_a(const Contraction& c, RegisterTile tile) const;
  KBlocks cut(const Contraction& c) const { return {c.k_shards, c.shard_k(), block_k}; }
  KBlocks cut_locally(const Contraction& c) const { return {c.k_shards, c.shard_k(), local_k}; }
  // Rows and columns that a task of one held block may have, whatever the register tile.
  int64_t most_m(int64_t task) const { return task + (is_fixed ? kMaxTileM - 1 : 0); }
  int64_t most_n(int64_t task) const { return task + (is_fixed ? kMaxTileN - 1 : 0); }
};

// Strips of b that a task packs at once: a row of k is then read in runs of a few cache lines.
inline constexpr int64_t kLocalStrips = 4;

// AVX-512: threads pack what they need of both operands for themselves and keep it for their next
// tasks. Lines of panels that other cores have read must be taken back from all of these before
// they are written again, and that takes longer than packing; and nobody waits for the others.
inline constexpr int kManyThreads = 8;  // fewer take longer runs
// One thread would wait for nobody; two and three wait once if shared panels hold all of b.
constexpr bool have_own_panels(int n_threads, int64_t b_floats) {
  return n_threads >= 4 || (n_threads > 1 && b_floats > kPanelFloats);
}
// Floats of b's strips that one of so many threads keeps.
constexpr int64_t own_floats(int n_threads) {
  return int64_t{1} << (n_threads < kManyThreads ? 21 : 20);
}
inline constexpr int64_t kOwnStrips = 256;  // of them, at most
inline constexpr int64_t kOwnK = 8192;      // a few strips of so many k are as much
inline constexpr int kOwnBlocks = 2;        // of a, kept where k has no more
inline constexpr int64_t kMarkFloats = 16;  // which parts these are

// Workspace: panels of a where tasks pack b, then per thread the tiles that wait between k blocks,
// then, as tasks pack a or b, per thread a block of a and behind them all panels of b, or per
// thread some strips of b, or per thread blocks of a and a group's strips of b. It grows with every
// extent, because a run may be smaller than its plan, and then pack in another way: hence room for
// each.
struct DotWorkspace {
  int64_t a_floats = 0;
  int64_t waiting_floats = 0;                      // per thread
  int64_t block_floats = 0;                        // of a, per thread
  int64_t b_floats = 0;                            // of panels
  int64_t strip_floats = 0;                        // per thread
  int64_t own_block_floats = 0, all_b_floats = 0;  // per thread, where it packs both
  DotWorkspace(const Contraction& c, const DotTiles& tiles);
  int64_t bytes(int n_threads) const {
    const int64_t shared = block_floats * n_threads + b_floats, local = strip_floats * n_threads,
                  own = own_thread_floats(n_threads) * n_threads;
    return 4 * (a_floats + waiting_floats * n_threads + std::max({shared, local, own}));
  }
  int64_t own_thread_floats(int n_threads) const {
    if (own_block_floats == 0 || !have_own_panels(n_threads, all_b_floats)) return 0;
    return kMarkFloats + own_block_floats + std::min(all_b_floats, own_floats(n_threads));
  }
};

// Whether AVX-512 sums products of bf16 in pairs faster than it multiplies and adds floats.
// TEGULA_BF16_PAIRS=off forbids it: no bit changes.
bool machine_sums_pairs();

// Whether a can be read where it lies: f32 rows, k side by side. `row`: elements between rows.
bool can_read_a(const Contraction& c, int64_t* row);

// A contraction with few rows reads b once and does little else: isa/dot_thin.cpp, without packing.
// At most kThinRows rows, b contiguous along n or k, and room for rows of a. Where it is along k,
// more than kThinDotRows are worth a tile of AMX.
inline constexpr int kThinRows = 16;
inline constexpr int kThinDotRows = 4;
inline constexpr int kThinColumns = 64;  // of a task, at least
bool is_thin(const Contraction& c, const DotTiles& tiles);

// The blocks of one launch on register tiles of tile_m × tile_n.
struct DotBlocks {
  int64_t batch = 0, m = 0, n = 0;   // whose panels are held at once
  int64_t task_m = 0, task_n = 0;    // one task: task_m × task_n outputs, at most
  int64_t parts_m = 1, parts_n = 1;  // of the rows and columns, at least
  int64_t strip_m = 0, strip_n = 0;  // what they are multiples of
  // Where threads pack b for themselves: groups of columns, and the parts of one, each a task with
  // one of parts_m parts of the rows; else 0.
  int64_t groups = 0, group_parts = 1;
  DotBlocks(const Contraction& c, const DotTiles& tiles, RegisterTile tile, int n_threads);
  int64_t m_tasks(int64_t rows) const { return std::max(parts_m, ceil_div(rows, task_m)); }
  int64_t n_tasks(int64_t cols) const { return std::max(parts_n, ceil_div(cols, task_n)); }

 private:
  void set_groups(const Contraction& c, const DotTiles& tiles, int n_threads);
};

}  // namespace tegula::kernel
