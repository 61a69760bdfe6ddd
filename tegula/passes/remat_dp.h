// The choice among recomputations along a chain: least time within a budget of memory.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tegula {

// One way to treat segments [begin, end) of the chain.
struct RematOption {
  int begin = 0, end = 1;
  int64_t kept_bytes = 0;     // stay from their forward to their backward pass
  int64_t working_bytes = 0;  // come back while their backward pass runs
  double seconds = 0;         // of recomputation
};

// Options that tile the chain [0, n_segments) with the least total time, such that while the
// backward pass of each runs, what all up to it keep and its own working set fit the budget:
//   for every chosen k:  Σ_{j ≤ k} kept_j + working_k ≤ budget.
// Indices in order; none if nothing fits. Dynamic programming over (segment, bytes kept), with at
// most n_bins states a segment: exact if sums of kept bytes differ by budget / n_bins or more,
// else within that of the budget. Time: options × n_bins.
std::optional<std::vector<int>> choose_remat(std::span<const RematOption> options, int n_segments,
                                             int64_t budget_bytes, int n_bins = 512);

}  // namespace tegula
