// all_gather: by the algorithm that the node names, round by round.
#include "tegula/kernels/cpu/common/rounds.h"

namespace tegula::kernel {

using By = Rounds<CollectiveKind::kAllGather>;

extern constinit const KernelDef all_gather_rounds = {
    .name = "all_gather_rounds",
    .op = "all_gather",
    .order = "exact",
    .doc = "parts go round by round, as a ring or in doubled distances",
    .priority = 1,
    .supports = By::supports,
    .workspace_bytes = By::workspace,
    .launch = By::launch,
    .moves = &By::kMoves,
};

}  // namespace tegula::kernel
