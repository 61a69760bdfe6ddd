// all_to_all: by the algorithm that the node names, round by round.
#include "tegula/kernels/cpu/common/rounds.h"

namespace tegula::kernel {

using By = Rounds<CollectiveKind::kAllToAll>;

extern constinit const KernelDef all_to_all_rounds = {
    .name = "all_to_all_rounds",
    .op = "all_to_all",
    .order = "exact",
    .doc = "parts go round by round, in pairs or in doubled distances",
    .priority = 1,
    .supports = By::supports,
    .workspace_bytes = By::workspace,
    .launch = By::launch,
    .moves = &By::kMoves,
};

}  // namespace tegula::kernel
