// CollectiveDef: an op that ranks execute together, as data. Each rank has such a node at the same
// place of its own function, with the same attributes; what it gives depends on the operands of all
// ranks of its group, in the order of the axis.
//
// Every collective has the attributes "axis", the mesh axis along which its group lies, and
// "ranks", how many they are. Sums are a binary tree over neighbours: ranks 0 and 1, 2 and 3, then
// these sums, and so on; each sum is rounded to the dtype. So the bits depend on no timing, and if
// a rank's operand is itself the root of such a tree over its share of 8 shards, the result has the
// bits of one rank that has them all.
#pragma once

#include <span>
#include <utility>

#include "tegula/base/tensor.h"
#include "tegula/ir/opdef.h"

namespace tegula {

struct CollectiveDef {
  // Bytes that the rank at `index` of the group gives to others, where each of them takes just what
  // it needs and sums are made in shares: a ring's volume. [Thakur et al. 2005, table 1]
  int64_t (*sent_bytes)(const OpCall& call, int64_t index) = nullptr;
  // The definition, on the operands and results of the whole group, rank by rank.
  void (*reference)(const OpCall& call, std::span<const TensorRef> in,
                    std::span<const TensorRef> out) = nullptr;
  int n_meetings = 1;     // how often all of them wait for one another's data
  bool is_bound = false;  // sent_bytes is what it sends at most: lengths are data
};

// Share i of n of a tensor's elements, in row-major order: what one rank sums.
inline std::pair<int64_t, int64_t> share_of(int64_t n_elements, int64_t index, int64_t n_ranks) {
  return {n_elements * index / n_ranks, n_elements * (index + 1) / n_ranks};
}

}  // namespace tegula
