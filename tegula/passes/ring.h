// The ring: attention over a sequence that an axis splits, keys and values passed from rank to
// rank.
//
// Rank r holds its queries and block r of the keys. In step s = 0 … n-1 it attends to block
// r - s (mod n), which its neighbour passed on while it attended to the one before: a block's
// transfer is started before the attention beside it (Step::starts in plan/plan.h). At no time a
// rank has more than three blocks. Each attention goes on from the o and lse of those before it, in
// f32 (ops/attention.h), and the last one rounds o to the dtype of q.
// Backward the blocks go round once more; every part is made with the whole's lse, dQ is summed
// where it is, and what a rank finds for another one's keys goes straight home, f32, to be added
// there in the order of the steps. Blocks that nobody further on can see (a causal mask, a window)
// are not passed on, and gradients that are zero by the mask are not sent.
// [Liu et al. 2023 (Ring Attention), section 3; Dao 2023 (FlashAttention-2), section 3.1]
//
// Positions are the attributes q_runs and k_runs, so ranks' functions differ in attributes alone.
#pragma once

#include "tegula/ir/builder.h"
#include "tegula/passes/local_call.h"

namespace tegula {

// The two factors that a ring cuts, of queries and of keys; queries < 0: the call cannot be one (it
// is no attention, an operand has both dims, n does not divide them).
struct RingFactors {
  int queries = -1, keys = -1;
};
RingFactors ring_factors(const LocalCall& call, const DimMap& map, int64_t n);

// The traffic of a ring: transfers of a block of keys, and of its gradients, between two ranks;
// over all ranks.
struct RingTransfers {
  int64_t n_blocks = 0, n_gradients = 0;
};
Result<RingTransfers> ring_transfers(const LocalCall& call, int64_t n);

// Rank `index`'s nodes of a call whose operands `in` are its shares; the call's results, its share.
Result<std::vector<Var>> emit_ring(Builder& b, const LocalCall& call, std::span<const Var> in,
                                   std::string_view axis, int64_t n, int64_t index);

}  // namespace tegula
