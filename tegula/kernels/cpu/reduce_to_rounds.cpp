// reduce_to: by the algorithm that the node names, round by round.
#include "tegula/kernels/cpu/common/rounds.h"

namespace tegula::kernel {

extern constinit const KernelDef reduce_to_rounds =
    rounds_kernel<CollectiveKind::kReduce>("reduce_to_rounds", "reduce_to", "on_the_way",
                                           "sums grow round by round, on the way to the root");

}  // namespace tegula::kernel
