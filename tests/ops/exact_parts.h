// An op in mode exact, whole and in parts: both by the kernels that a run takes (passes, plan,
// session), joined here, in the tree that exact promises, from pieces cut by the dim map alone.
//
//   whole   the op as a step of one rank has it: passes give its sums their shards
//   parts   one for each share of each cut factor, on its own operands, with its share of the
//           shards; sums wide; neighbours joined at distance 1, then 2, then 4, over the last cut
//           factor first; rounded to the result's dtype once
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tests/ops/case.h"

namespace tegula::testing {

// A factor in n consecutive parts: part i is [i·size/n, (i+1)·size/n), rounded down.
struct Cut {
  int factor;
  int64_t n;
};

class ExactCase {
 public:
  // Runs it whole. Error: of passes, plan or session.
  static Result<ExactCase> create(const Case& c);

  // False: the factor's shards do not divide into so many parts.
  bool may_be_shards(const Cut& cut) const;
  // Empty: the joined parts have the bits of the whole; else where they differ.
  Result<std::string> differs(std::span<const Cut> cuts) const;
  // Does `shard` in mode exact cut it so, where its operands lie so already?
  Result<bool> is_cut_by_shard(const Cut& cut) const;

  const DimMap& map() const { return map_; }
  const std::vector<HostTensor>& whole() const { return whole_; }

 private:
  std::vector<Cut> as_joined(std::span<const Cut> cuts) const;

  Case case_;
  Attrs attrs_;  // with the shards that passes gave it
  bool is_one_node_ = false;
  DimMap map_;
  std::vector<HostTensor> whole_;
};

}  // namespace tegula::testing
