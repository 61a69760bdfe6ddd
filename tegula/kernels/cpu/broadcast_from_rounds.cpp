// broadcast_from: by the algorithm that the node names, round by round.
#include "tegula/kernels/cpu/common/rounds.h"

namespace tegula::kernel {

extern constinit const KernelDef broadcast_from_rounds = rounds_kernel<CollectiveKind::kBroadcast>(
    "broadcast_from_rounds", "broadcast_from", "exact",
    "what the root has goes round by round, as a tree or a chain");

}  // namespace tegula::kernel
