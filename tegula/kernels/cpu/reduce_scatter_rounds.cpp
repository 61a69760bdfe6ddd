// reduce_scatter: by the algorithm that the node names, round by round.
#include "tegula/kernels/cpu/common/rounds.h"

namespace tegula::kernel {

using By = Rounds<CollectiveKind::kReduceScatter>;

extern constinit const KernelDef reduce_scatter_rounds = {
    .name = "reduce_scatter_rounds",
    .op = "reduce_scatter",
    .order = "on_the_way",
    .doc = "sums grow round by round, on the way to whom they belong",
    .priority = 1,
    .supports = By::supports,
    .workspace_bytes = By::workspace,
    .launch = By::launch,
    .moves = &By::kMoves,
};

}  // namespace tegula::kernel
