// all_reduce: by the algorithm that the node names, round by round.
#include "tegula/kernels/cpu/common/rounds.h"

namespace tegula::kernel {

extern constinit const KernelDef all_reduce_rounds =
    rounds_kernel<CollectiveKind::kAllReduce>("all_reduce_rounds", "all_reduce", "on_the_way",
                                              "sums grow round by round, then go round by round");

}  // namespace tegula::kernel
