// Sugar for collectives, and what their files share.
#pragma once

#include <string_view>

#include "tegula/ir/builder.h"
#include "tegula/ir/collective.h"

namespace tegula {

// Which group: the axis of the mesh and its ranks.
struct Group {
  std::string_view axis;
  int64_t n_ranks = 1;
};

// The sum, largest or smallest over the group, elementwise.
Var all_reduce(Var x, const Group& group, Combine combine = Combine::kSum,
               Loc loc = Loc::current());
// Along `dim` the ranks' operands side by side: of each of `parts` parts of the dim, rank 0's, rank
// 1's, …
Var all_gather(Var x, const Group& group, int dim, int64_t parts = 1, Loc loc = Loc::current());
// all_reduce, of which a rank gets only its share of `dim`, as all_gather would put it back.
Var reduce_scatter(Var x, const Group& group, int dim, int64_t parts = 1, Loc loc = Loc::current());
// From split along one dim to split along another: a rank gives every other one that one's share of
// `split`, and lays what it gets side by side along `gather`.
Var all_to_all(Var x, const Group& group, int split, int gather, Loc loc = Loc::current());

}  // namespace tegula
