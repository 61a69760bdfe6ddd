// The algorithms, one a file, and what they share. Internal to kernels/cpu/common.
#pragma once

#include "tegula/kernels/cpu/common/algorithm.h"

namespace tegula {

extern const AlgorithmDef direct_algorithm, mst_algorithm, ring_algorithm, halving_algorithm;

// Ranks counted from the root on.
struct FromRoot {
  int64_t n = 1, root = 0;
  int64_t number(int64_t rank) const { return (rank - root + n) % n; }
  int64_t rank(int64_t number) const { return (number + root) % n; }
};

// By a minimum spanning tree (mst.cpp), in the rounds of a tree.
namespace mst {
// The root's operand into everybody's place in the result: number i from the root on gets part i,
// and on the way those of the ranks that it serves: `held` in all.
void scatter_in_place(const CollectiveJob& job, int64_t rank, int64_t round, Round& out);
int64_t held(int64_t number, int64_t n_ranks);
}  // namespace mst

}  // namespace tegula
