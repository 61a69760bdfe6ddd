// all_gather: by the algorithm that the node names, round by round.
#include "tegula/kernels/cpu/common/rounds.h"

namespace tegula::kernel {

extern constinit const KernelDef all_gather_rounds = rounds_kernel<CollectiveKind::kAllGather>(
    "all_gather_rounds", "all_gather", "exact",
    "parts go round by round, as a ring or in doubled distances");

}  // namespace tegula::kernel
