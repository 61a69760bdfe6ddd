// Offsets: lays buffers with lifetimes into one arena.
//
// Buffers i and j may overlap in memory only if their lifetimes do not. Minimising the arena is
// dynamic storage allocation (NP-hard); on training graphs placing by size, largest first, each in
// the smallest gap that fits, reaches the lower bound (the largest sum of live bytes at any step).
// Several orders are tried and the best kept; small instances go through branch and bound. Cost: of
// n buffers whose memory is closely packed at any step O(n log² n).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tegula {

struct Lifetime {
  int first = 0;  // live during steps [first, last]
  int last = 0;
  int64_t bytes = 0;
};

struct Layout {
  std::vector<int64_t> offsets;
  int64_t bytes = 0;        // highest end
  int64_t lower_bound = 0;  // max over steps of Σ live bytes
};

inline constexpr int64_t kAlignment = 64;

// Offsets are multiples of kAlignment; sizes are rounded up to it. Zero-byte buffers get offset 0.
Layout plan_offsets(std::span<const Lifetime> buffers);

// The same for very many buffers of few sizes, as a step of thousands of micro-batches has: buffers
// of one size share places, each taken by whoever begins when it is free. Never more than the sum
// over sizes of what lives at once, and that where sizes have their peaks together; O(n log n),
// where plan_offsets takes O(n²).
Layout plan_offsets_by_size(std::span<const Lifetime> buffers);

// The largest sum of live bytes (rounded sizes).
int64_t live_lower_bound(std::span<const Lifetime> buffers);

}  // namespace tegula
