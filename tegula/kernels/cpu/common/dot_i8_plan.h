// How dot_i8 is laid out in memory: sizes only, never bits.
#pragma once

#include <span>

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cpu/common/dot_plan.h"

namespace tegula::kernel {

// Up to so many rows, weights are read once and used out of registers; with more they are packed.
inline constexpr int64_t kI8ThinRows = 16;
inline constexpr int64_t kI8ThinColumns = 4096;              // of a task: its sums stay in L1 …
inline constexpr int64_t kI8SomeColumns = 1024;              // … or, of more rows, in L2
inline constexpr int64_t kI8PanelBytes = int64_t{16} << 20;  // of weights held at once
inline constexpr int64_t kI8Strip = 64;                      // columns, on any instruction set
inline constexpr int64_t kI8Pad = 64;                        // so is k of a group

struct I8Problem {
  int64_t m, n, k, groups, e;
  bool is_four;  // two weights in a byte

  explicit I8Problem(const Attrs& attrs, std::span<const TensorRef> in)
      : m(in[0].shape[0]),
        n(in[2].shape[1]),
        k(in[0].shape[1]),
        groups(in[3].shape[0]),
        e(groups == 0 ? 0 : k / groups),
        is_four(attrs.get_or<int64_t>("bits", 8) == 4) {}
  bool is_thin() const { return m <= kI8ThinRows; }
};

// Parts of k whose sums are made apart, where rows are few; none: there are too many rows.
struct I8Parts {
  static constexpr int64_t kMostRows = 4, kParts = 16, kLeastQuads = 16;
  int64_t per_group = 0, quads = 0, count = 0, row = 0;

  explicit I8Parts(const I8Problem& p) {
    const int64_t all = ceil_div(p.e, 4);
    if (p.m > kMostRows || p.groups == 0) return;
    quads = std::max(kLeastQuads, ceil_div(all, ceil_div(kParts, p.groups)));
    per_group = std::max<int64_t>(1, ceil_div(all, quads));
    count = p.groups * per_group, row = round_up(p.n, kI8Strip);
  }
};

// Workspace: rows of x (padded, at most two bytes an element) and their sums, then per thread sums
// of a task, or panels of weights.
struct I8Workspace {
  int64_t row_bytes, sums_at, more_at, thread_bytes = 0, panel_bytes = 0;

  explicit I8Workspace(const I8Problem& p) {
    // Rows a power of two apart would share sets of the first cache: hence one line more.
    row_bytes = 2 * p.groups * round_up(p.e, kI8Pad) + 64;
    sums_at = round_up(p.m, 32) * row_bytes;
    more_at = sums_at + round_up(4 * p.m * p.groups, 64);
    if (p.is_thin()) {
      const I8Parts parts(p);
      panel_bytes = 4 * parts.count * p.m * parts.row;
      if (parts.count == 0)
        thread_bytes = 4 * p.m * std::min(kI8SomeColumns, round_up(p.n, kI8Strip));
    } else {
      // Weights have 16 bits where there is no VPDPBUSD.
      const int64_t strip = 2 * kI8Strip * p.groups * round_up(p.e, kI8Pad);
      panel_bytes = std::max(strip, std::min(ceil_div(p.n, kI8Strip) * strip, kI8PanelBytes));
    }
  }
  int64_t bytes(int n_threads) const { return more_at + n_threads * thread_bytes + panel_bytes; }
};

bool supports_i8(const KernelQuery& q);
int64_t i8_bytes(const KernelQuery& q);

// Whether AVX-512's kernels may use VPDPBUSD. TEGULA_VNNI=off forbids it: no bit changes.
bool machine_has_vnni();

}  // namespace tegula::kernel
