// Sums in shards: what makes their bits those of any number of ranks (Mode::kExact).
//
// A node with the attribute `sum_shards` (ir/sum_shards.h) is the op on each cell (p, q) and two
// levels of binary trees over neighbours, the inner one over q, all wide, rounded once. A rank that
// holds a share of the outer shards computes a subtree, and all_reduce joins these. One that holds
// a share of the inner ones computes a subtree for each p; these are joined before the outer tree
// goes on (passes/exact_cuts.h). This is the definition and what runs, but for `dot`: there the
// inner shards of all p are one launch, since its kernels sum shards of k in a tree.
#pragma once

#include "tegula/ir/builder.h"
#include "tegula/ir/sum_shards.h"
#include "tegula/passes/local_call.h"

namespace tegula {

// Does a call sum a result over the factor?
bool sums_over(const DimMap& map, int factor);
// The shards that the call's sums of floats can have.
SumShards most_shards(const LocalCall& call);

// A result by outer shards: their sums, wide, apart or side by side along a dim 0 of their own; or
// one value, of a result that is no sum.
class ByShards {
 public:
  static ByShards apart(std::vector<Var> sums) { return ByShards(std::move(sums), Var()); }
  static ByShards together(Var sums) { return ByShards({}, sums); }
  Var side_by_side() const;
  Var joined() const;

 private:
  ByShards(std::vector<Var> apart, Var together) : apart_(std::move(apart)), together_(together) {}
  std::vector<Var> each() const;

  std::vector<Var> apart_;
  Var together_;
};

// The call, which has the attribute, of whole operands: per result by outer shards.
Result<std::vector<ByShards>> emit_by_shards(Builder& b, const LocalCall& call,
                                             std::span<const Var> in, Loc loc);

}  // namespace tegula
