// all_to_all: by the algorithm that the node names, round by round.
#include "tegula/kernels/cpu/common/rounds.h"

namespace tegula::kernel {

extern constinit const KernelDef all_to_all_rounds = rounds_kernel<CollectiveKind::kAllToAll>(
    "all_to_all_rounds", "all_to_all", "exact",
    "parts go round by round, in pairs or in doubled distances");

}  // namespace tegula::kernel
