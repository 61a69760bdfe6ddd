// search: the fastest of many points, timing few of them.
//
// Batch by batch: the first is half the prior's favourites, half spread at random; every next one
// is chosen by a CostModel fitted to all trials so far, as the lowest of (predicted - uncertainty),
// one after another, each choice shrinking the uncertainty near it. Deterministic but for what
// `measure` returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tegula {

struct SearchSpace {
  std::vector<std::vector<double>> features;  // per point; all of one length
  std::vector<double> prior;                  // per point: a guess of log time, up to a constant
};

struct SearchOptions {
  int trials = 32;  // points timed at most, point 0 among them
  int batch = 8;
  uint64_t seed = 1;
};

struct Trial {
  size_t point = 0;
  double ratio = 0;  // its time over point 0's
};

// Times the points together, and writes for each its time over that of point 0; false: no time
// left.
using MeasureFn = bool (*)(void* context, std::span<const size_t> points, std::span<double> ratios);

// All trials, the best first; point 0 is among them with ratio 1.
std::vector<Trial> search(const SearchSpace& space, const SearchOptions& options, MeasureFn measure,
                          void* context);

// Features of points given as knobs ≥ 0 and prior cost terms: logs, their squares and products.
std::vector<double> quadratic_features(std::span<const double> knobs,
                                       std::span<const double> terms);

}  // namespace tegula
