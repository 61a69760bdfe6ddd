// Sums in shards: what makes their bits those of any number of ranks (Mode::kExact).
//
// A node with the attribute "sum_shards" = S sums over the outermost factor of operand 0 in S equal
// consecutive shards: the op on each shard, and a binary tree over neighbours of their results,
// wide, rounded once. A rank that holds S/n of the shards computes a subtree; all_reduce joins
// these. `dot` has the same as its own attribute, k_shards, since its kernels do it in one launch;
// of other ops this is the definition, and what runs.
//
// An add with the attribute adds sums over the same shards: within each shard, in the graph's
// order, before the tree. So what ranks hold of them has one sum that pends.
#pragma once

#include <numeric>

#include "tegula/ir/builder.h"
#include "tegula/passes/local_call.h"

namespace tegula {

inline constexpr int64_t kMostSumShards = 8;
// Of a factor: 8, 4 or 2, whichever divides it; 1: none.
inline int64_t shards_of(int64_t extent) { return std::gcd(extent, kMostSumShards); }

// The factor of a call's shards: that of dim 0 of operand 0, if some result sums over it; -1: none.
int sharded_factor(const LocalCall& call, const DimMap& map);
// How many shards the call's sums can have: 8, 4 or 2, as divides the factor; 1: none.
int64_t most_shards(const LocalCall& call);

// Per value the add at the root of those that it is added by before its shards are joined, directly
// or through casts; kNone: it is joined itself.
std::vector<NodeId> shard_addends(const Function& f);

// The call, shard by shard, of whole operands: per result its shards' sums, wide where their dtype
// is narrow, or one value, the shards' results side by side.
Result<std::vector<std::vector<Var>>> emit_shards(Builder& b, const LocalCall& call, int64_t shards,
                                                  std::span<const Var> in, Loc loc);
// The same with sums joined.
Result<std::vector<Var>> emit_in_shards(Builder& b, const LocalCall& call, int64_t shards,
                                        std::span<const Var> in, Loc loc);

}  // namespace tegula
