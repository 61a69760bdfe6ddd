// reduce_scatter: by the algorithm that the node names, round by round.
#include "tegula/kernels/cpu/common/rounds.h"

namespace tegula::kernel {

extern constinit const KernelDef reduce_scatter_rounds =
    rounds_kernel<CollectiveKind::kReduceScatter>(
        "reduce_scatter_rounds", "reduce_scatter", "on_the_way",
        "sums grow round by round, on the way to whom they belong");

}  // namespace tegula::kernel
