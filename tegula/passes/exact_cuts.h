// Where a mesh may cut a sum in Mode::kExact, so that its bits stay those of one rank.
#pragma once

#include <vector>

#include "tegula/ir/builder.h"
#include "tegula/ir/sum_shards.h"
#include "tegula/ops/collective.h"
#include "tegula/passes/local_call.h"

namespace tegula {

// Sums of integers and largest elements are the same in any order.
bool has_no_order(DType dtype, Combine how);

enum class SumCut : uint8_t {
  kRefused,
  kPends,      // as states_of_cut says, or nothing is summed: whoever reads it joins it
  kExchanged,  // ranks have parts of inner trees: these are joined within the node, for each outer
               // shard, before the outer tree
};
// `give` is what a cut that states_of_cut allows gives. A sum is cut between its shards alone:
// then each rank's part is a subtree.
SumCut cut_of_sum(const LocalCall& call, const DimMap& map, const AxisCut& cut, int64_t n_ranks,
                  const std::vector<AxisSharding>& give);

// Do the ranks of an axis join result r's inner trees within the node, if it lies so afterwards?
bool is_exchanged(const LocalCall& call, const DimMap& map, const AxisCut& cut, size_t r,
                  const AxisSharding& state);

// Who joins a result's inner trees, outermost axis first; none: it has none of which ranks have
// parts.
using Exchanged = std::vector<Group>;
// A rank's part of a call with such sums, per result. Sums are wide.
Result<std::vector<Var>> emit_exchanged(Builder& b, const LocalCall& call, std::span<const Var> in,
                                        std::span<const Exchanged> exchanged, Loc loc);

// A rank's part of a call, of whose results ranks join those later that pend: `pends`, per result.
// These are wide: what is narrow is rounded when all is joined.
Result<std::vector<Var>> emit_pending(Builder& b, LocalCall call, std::span<const Var> in,
                                      std::span<const uint8_t> pends, Loc loc);

}  // namespace tegula
