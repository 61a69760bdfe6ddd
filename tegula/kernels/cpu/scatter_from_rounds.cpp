// scatter_from: by the algorithm that the node names, round by round.
#include "tegula/kernels/cpu/common/rounds.h"

namespace tegula::kernel {

extern constinit const KernelDef scatter_from_rounds =
    rounds_kernel<CollectiveKind::kScatter>("scatter_from_rounds", "scatter_from", "exact",
                                            "what the root has goes round by round, halved");

}  // namespace tegula::kernel
