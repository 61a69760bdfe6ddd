// Cache lines that lie in memory and will be needed soon: their prefetches are spread over the work
// that goes on meanwhile, because a core can wait for only a few lines at a time.
#pragma once

#include <cstdint>

#include "tegula/base/algorithm.h"
#include "tegula/kernels/kernel.h"

namespace tegula::kernel::TEGULA_ISA_NS {

class FarLines {
 public:
  // Adds n rows of t, each its whole innermost dim. The first is at (batch, s, head + in_group).
  // The next row is the next head of the group of `group` heads that begins at `head`; after the
  // last head it is the group's first one at s + 1.
  void add(const TensorRef& t, int64_t batch, int64_t s, int64_t head, int64_t n, bool is_written,
           int64_t group = 1, int64_t in_group = 0) {
    if (n <= 0 || n_runs_ == kMostRuns) return;
    const int64_t size = size_bytes(t.dtype);
    Run& r = runs_[n_runs_++];
    const int64_t first = batch * t.stride[0] + s * t.stride[1] + (head + in_group) * t.stride[2];
    r.at = t.as<const char>() + first * size;
    r.n = n, r.lines = (t.shape[3] * size + 63) / 64;
    r.stride = t.stride[2] * size, r.group = group, r.in_group = in_group;
    r.group_stride = (t.stride[1] - group * t.stride[2]) * size;
    r.is_written = is_written;
    lines_ += n * r.lines;
  }
  int64_t lines() const { return lines_; }

  // Prefetches the next n lines.
  void fetch(int64_t n) {
    while (n > 0 && run_ < n_runs_) {
      Run& r = runs_[run_];
      const int64_t last = std::min(r.lines, line_ + n);
      n -= last - line_;
      if (r.is_written) {
        for (; line_ < last; ++line_) __builtin_prefetch(r.at + 64 * line_, 1);
      } else {
        for (; line_ < last; ++line_) __builtin_prefetch(r.at + 64 * line_);
      }
      if (line_ < r.lines) return;
      line_ = 0, r.at += r.stride;
      if (++r.in_group == r.group) r.in_group = 0, r.at += r.group_stride;
      if (--r.n == 0) ++run_;
    }
  }

 private:
  static constexpr int kMostRuns = 12;
  struct Run {
    const char* at;
    int64_t n, lines, stride, group, in_group, group_stride;
    bool is_written;
  };
  Run runs_[kMostRuns];
  int n_runs_ = 0, run_ = 0;
  int64_t line_ = 0, lines_ = 0;
};

}  // namespace tegula::kernel::TEGULA_ISA_NS
