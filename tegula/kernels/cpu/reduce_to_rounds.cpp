// reduce_to: by the algorithm that the node names, round by round.
#include "tegula/kernels/cpu/common/rounds.h"

namespace tegula::kernel {

using By = Rounds<CollectiveKind::kReduce>;

extern constinit const KernelDef reduce_to_rounds = {
    .name = "reduce_to_rounds",
    .op = "reduce_to",
    .order = "on_the_way",
    .doc = "sums grow round by round, on the way to the root",
    .priority = 1,
    .supports = By::supports,
    .workspace_bytes = By::workspace,
    .launch = By::launch,
    .moves = &By::kMoves,
};

}  // namespace tegula::kernel
