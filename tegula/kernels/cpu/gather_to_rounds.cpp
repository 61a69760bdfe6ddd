// gather_to: by the algorithm that the node names, round by round.
#include "tegula/kernels/cpu/common/rounds.h"

namespace tegula::kernel {

extern constinit const KernelDef gather_to_rounds = rounds_kernel<CollectiveKind::kGather>(
    "gather_to_rounds", "gather_to", "exact",
    "parts go round by round, joined on the way to the root");

}  // namespace tegula::kernel
