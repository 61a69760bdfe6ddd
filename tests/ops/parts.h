// The parts that a rank holds of an op's operands and results where factors of its dims are cut:
// read off the dim map alone, beside passes/local_call.h, which the product cuts by.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tests/ops/case.h"

namespace tegula::testing {

// [lo, hi) of a factor. A rank's part is one for each factor that is cut.
struct Part {
  int factor;
  int64_t lo, hi;
};

// For each dim of a tensor, which of its indices a part holds, in order; -1: outside (reads as 0).
using Indices = std::vector<std::vector<int64_t>>;

Indices indices(const DimMap& m, const std::vector<DimExpr>& dims, const Shape& whole,
                std::span<const Part> parts);
Shape shape_of_part(const Indices& at);

// fn(row-major index in the part, row-major index in the whole or -1).
template <class F>
void for_each_element(const Indices& at, const Shape& whole, F&& fn) {
  std::vector<int64_t> sizes;
  for (const auto& dim : at) sizes.push_back(static_cast<int64_t>(dim.size()));
  int64_t n = 0;
  for_each_index(sizes, [&](const Index& i) {
    int64_t to = 0;
    for (size_t d = 0; d < at.size() && to >= 0; ++d) {
      const int64_t k = at[d][static_cast<size_t>(i[d])];
      to = k < 0 ? -1 : to * whole[static_cast<int>(d)].bound() + k;
    }
    fn(n++, to);
  });
}

// Element j of `from` as element i of `to`, all its bits where both have one dtype.
void copy_element(HostTensor& to, int64_t i, const HostTensor& from, int64_t j);

// Operand k of a part: ids that select along a cut factor count from its first index.
HostTensor operand_of(const DimMap& m, size_t k, const HostTensor& whole,
                      std::span<const Part> parts);

// The row-major index in result `to` of the element that goes with element `i` of result `from`:
// by the factors that index both.
int64_t aligned(const DimMap& m, std::span<const Type> types, size_t from, int64_t i, size_t to);

// May the factor be cut at all, by its dims?
bool is_cuttable(const DimMap& m, size_t factor);

}  // namespace tegula::testing
