// tegula plan --schedule tera_pipe: how long slices of a micro-batch's tokens take, and where to
// cut.
#pragma once

#include <array>
#include <vector>

#include "tegula/passes/program.h"

namespace tegula::cli {

// Seconds of a part for the first x tokens: fixed + linear · x + square · x². Weights are read
// once, most work is as large as the tokens are many, attention as their square. So tokens s to e
// take fixed + linear · (e − s) + square · (e² − s²), if they attend to what is before them.
struct PartTime {
  double fixed = 0, linear = 0, square = 0;
  double of(double begin, double end) const;
};
// Through three points, in ascending order.
PartTime part_time(const std::array<int64_t, 3>& tokens, const std::array<double, 3>& seconds);

struct Slices {
  std::vector<int64_t> tokens;  // of each slice
  std::vector<double> seconds;  // of each part and slice; of parts that run once, all in the first
};
// Cut at multiples of a 64th of the tokens, or at any. n_slices 0: as many as are best.
Result<Slices> cut_slices(const Program& program, const std::vector<PartTime>& times,
                          int64_t n_tokens, int n_ranks, int n_slices);

}  // namespace tegula::cli
