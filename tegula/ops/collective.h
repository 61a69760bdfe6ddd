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
  // Begun where it stands and over where it is first read, beside the work in between (Step::starts
  // in plan/plan.h). Not all_reduce, in which ranks meet twice: its halves are reduce_scatter and
  // all_gather.
  bool in_background = false;
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
// The same of rows along the last dim of which only the first `sent` elements are filled; what rows
// hold beyond is 0 in y. sent: i32 [dims of x but the last]; received: the same of y, which is
// all_to_all of `sent`.
Var all_to_all_ragged(Var x, Var sent, Var received, const Group& group, int split, int gather,
                      Loc loc = Loc::current());

// Rank r receives x of rank from[r], where that is -1 zeros; nobody sends to two. One op for all
// that passes between pairs: a send and its receive are two sides of one node, a ring's shift is a
// `from` of neighbours, and as every rank has the node none can wait for one that never comes.
Var send_recv(Var x, const Group& group, std::vector<int64_t> from, Loc loc = Loc::current());
// x of rank `root`, on all; its adjoint, the sum on rank `root` and zeros elsewhere.
Var broadcast_from(Var x, const Group& group, int64_t root, Loc loc = Loc::current());
Var reduce_to(Var x, const Group& group, int64_t root, Loc loc = Loc::current());
// The rank's share along `dim` of rank root's x, which has the same shape everywhere; its adjoint,
// the ranks' x side by side along `dim` on rank `root` and zeros elsewhere.
Var scatter_from(Var x, const Group& group, int64_t root, int dim, Loc loc = Loc::current());
Var gather_to(Var x, const Group& group, int64_t root, int dim, Loc loc = Loc::current());

}  // namespace tegula
