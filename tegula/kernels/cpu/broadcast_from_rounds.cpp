// broadcast_from: by the algorithm that the node names, round by round.
#include "tegula/kernels/cpu/common/rounds.h"

namespace tegula::kernel {

using By = Rounds<CollectiveKind::kBroadcast>;

extern constinit const KernelDef broadcast_from_rounds = {
    .name = "broadcast_from_rounds",
    .op = "broadcast_from",
    .order = "exact",
    .doc = "what the root has goes round by round, as a tree or a chain",
    .priority = 1,
    .supports = By::supports,
    .workspace_bytes = By::workspace,
    .launch = By::launch,
    .moves = &By::kMoves,
};

}  // namespace tegula::kernel
