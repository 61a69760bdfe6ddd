// How products with weights in blocks are laid out in memory: sizes only, never bits.
#pragma once

#include "tegula/base/block_format.h"
#include "tegula/kernels/cpu/common/dot_plan.h"

namespace tegula::kernel {

inline constexpr int64_t kBlockFewRows = 4;      // up to so many, weights are used out of registers
inline constexpr int64_t kBlockColumns = 32;     // of a strip, at most
inline constexpr int64_t kBlockPanelRows = 256;  // of w that are dequantised at once

// The tensors of one expert, of all that are stacked along the first dim.
TensorRef expert_of(const TensorRef& all, int64_t e);

// A call of dot_blocks: rows of x and y, at any strides but the last. Experts have a w each: then
// it is the first one's call, and all are laid out alike.
struct BlockDot {
  int64_t experts = 1;
  BlockFormat format;
  const BlockLayout* layout;
  int64_t m = 1, n, k;
  Loops rows;  // of x (kA), of its scales (kB) and of y (kOut)

  // False: some last dim has gaps.
  static bool parse(const Attrs& attrs, std::span<const TensorRef> in, const TensorRef& out,
                    BlockDot& c);
  int64_t groups() const { return k / layout->n_group; }
};

// Workspace of integer sums: for every row of x and group the offset of its integers and that of
// its mins, then the rows that are no zeros, then a strip of weights for each thread.
struct BlockWorkspace {
  int64_t offsets_at = 0, mins_at, live_at, strips_at, strip_bytes;

  explicit BlockWorkspace(const BlockDot& c) {
    mins_at = round_up(4 * c.m * c.groups(), 64);
    live_at = 2 * mins_at;
    strips_at = live_at + round_up(4 * c.m, 64);
    strip_bytes = kBlockColumns * (c.k + 8 * c.groups()) + 64;
  }
  int64_t bytes(int n_threads) const { return strips_at + n_threads * strip_bytes; }
};

}  // namespace tegula::kernel
