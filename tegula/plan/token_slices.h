// slice_tokens: where to cut a micro-batch's tokens so that a pipeline of slices takes least time.
//
// With m micro-batches on p ranks, slices that take t₁ … t_T in a stage take, one behind another,
//   m · Σ tᵢ + (p − 1) · max tᵢ,
// since the slowest slice sets the pace at which the pipeline fills. More slices fill it sooner,
// until what a slice costs by itself (weights read once more, launches) outweighs that; later
// slices are shorter, because their tokens attend to more.
//
// Exact over cuts at multiples of a unit: for each time that may be the largest, the least Σ tᵢ by
// dynamic programming over the last cut. O(n⁴) at worst for n units, with times that cannot win
// left out.
// Source: Li et al. 2021 (TeraPipe), section 3.3, algorithm 1.
#pragma once

#include <vector>

#include "tegula/base/result.h"

namespace tegula {

// seconds of tokens [begin, end) of a micro-batch in the slowest stage, in units: positive.
struct SliceTimes {
  int n_units = 0;
  std::vector<double> seconds;  // [begin][end], n_units · (n_units + 1)
  double& at(int begin, int end) { return seconds[index(begin, end)]; }
  double at(int begin, int end) const { return seconds[index(begin, end)]; }
  size_t index(int begin, int end) const {
    return static_cast<size_t>(begin) * (static_cast<size_t>(n_units) + 1) +
           static_cast<size_t>(end);
  }
};
SliceTimes slice_times(int n_units);  // all 0

struct TokenSlices {
  std::vector<int> lengths;  // in units
  double seconds = 0;        // of the pipeline
};

// Exactly `n_slices` of them; 0: as many as are best. Errors: more slices than units; times that
// are negative or not finite; no ranks or micro-batches.
Result<TokenSlices> slice_tokens(const SliceTimes& times, int n_ranks, int n_micro_batches,
                                 int n_slices = 0);

}  // namespace tegula
