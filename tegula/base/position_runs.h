// Positions of a row of tokens in their text, where they are not 0, 1, 2, …: a part of a longer
// row, a stripe of it, its first and its last piece.
#pragma once

#include <cstdint>
#include <span>

#include "tegula/base/algorithm.h"

namespace tegula {

// As attributes have them: one number, from which positions go up by 1; or runs, each a start, a
// stride and a count.
struct PositionRuns {
  int64_t start = 0;
  std::span<const int64_t> runs = {};  // of three numbers; none: from start on

  static PositionRuns of(std::span<const int64_t> numbers) {
    if (numbers.size() == 1) return {numbers[0]};
    return {0, numbers};
  }
  bool is_one() const { return runs.empty(); }
  int64_t count() const {
    int64_t n = 0;
    for (size_t r = 0; r < runs.size(); r += 3) n += runs[r + 2];
    return n;
  }
  int64_t at(int64_t i) const {
    if (is_one()) return start + i;
    size_t r = 0;
    for (; r + 3 < runs.size() && i >= runs[r + 2]; r += 3) i -= runs[r + 2];
    return runs[r] + i * runs[r + 1];
  }
  // How many of n that ascend are below x.
  int64_t before(int64_t x, int64_t n) const {
    if (is_one()) return std::clamp<int64_t>(x - start, 0, n);
    int64_t below = 0;
    for (size_t r = 0; r < runs.size(); r += 3) {
      const int64_t stride = runs[r + 1], gap = x - runs[r];
      if (gap > 0) below += std::min(runs[r + 2], (gap + stride - 1) / stride);
    }
    return below;
  }
  bool ascends() const {
    int64_t next = INT64_MIN;  // the least that the next one may be
    for (size_t r = 0; r < runs.size(); r += 3) {
      if (runs[r + 2] == 0) continue;
      if (runs[r] < next) return false;
      next = runs[r] + (runs[r + 2] - 1) * runs[r + 1] + 1;
    }
    return true;
  }
};

}  // namespace tegula
