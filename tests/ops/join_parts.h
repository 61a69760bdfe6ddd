// Partial results of a call's parts, joined as the dims say and in the order that exact promises.
#pragma once

#include <span>
#include <vector>

#include "tests/ops/case.h"

namespace tegula::testing {

// The elements that some parts know of the results: tensors of the whole's shapes, sums wide, and
// which elements of them there are.
struct Known {
  std::vector<HostTensor> results;
  std::vector<std::vector<uint8_t>> has;  // [result][element]
};

// Sums of narrow floats are f32.
DType wide(DType t);

// The neighbours along a factor in a binary tree: distance 1 first, then 2, 4. parts[0] becomes the
// whole, the others are used up. Error: two parts have one element of a free factor, or differ
// where the dims promise equal results.
Status join_in_tree(const DimMap& m, size_t factor, std::span<Known> parts);

}  // namespace tegula::testing
