// Programs that are right in part, and their correction. [Wang et al. 2021, PET]
//
// At constant sizes both sides of a rule are cut into boxes of their result within which every
// guard and every bound of a sum is decided alike and every read moves with the index: there a
// program of products and sums is one polynomial of inputs that shifts along, so that two programs
// which agree at a corner and one step along each dim agree throughout the box (PET, theorem 2):
// rank + 1 positions a box, whatever its size. Values are of random inputs modulo 2^61 − 1. The
// correction computes the left side on wrong boxes alone, from slices of the inputs.
#pragma once

#include "tools/rules/prove/evaluate.h"

namespace tegula::superopt {

struct Box {
  std::vector<int64_t> lo, hi;  // lo ≤ index < hi
  int64_t n_elements() const;
};

struct Partial {
  std::vector<int64_t> shape;
  std::vector<Box> wrong;  // apart from one another, merged along dims where that is possible
  int64_t n_boxes = 0;     // that were looked at
  int64_t positions_tested = 0;
};
// Errors: sides of different shapes; a kind that is no sum of products; too many boxes.
Result<Partial> compare(const Rule& rule, const Assignment& at, uint64_t seed = 1);

// The rule at these sizes whose right side has the wrong boxes replaced by the left side's.
Result<Rule> correct(const Rule& rule, const Assignment& at, std::span<const Box> wrong);
// Multiply-adds of a node and all it is made of.
int64_t work_of(const Graph& graph, int node, const Assignment& at);

}  // namespace tegula::superopt
