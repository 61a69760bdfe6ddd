// all_reduce: by the algorithm that the node names, round by round.
#include "tegula/kernels/cpu/common/rounds.h"

namespace tegula::kernel {

using By = Rounds<CollectiveKind::kAllReduce>;

extern constinit const KernelDef all_reduce_rounds = {
    .name = "all_reduce_rounds",
    .op = "all_reduce",
    .order = "on_the_way",
    .doc = "sums grow round by round, then go round by round",
    .priority = 1,
    .supports = By::supports,
    .workspace_bytes = By::workspace,
    .launch = By::launch,
    .moves = &By::kMoves,
};

}  // namespace tegula::kernel
