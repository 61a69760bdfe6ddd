// Shared tiles without bank conflicts.
#include "tegula/kernels/cuda/describe/dot_query.h"

namespace tegula::cuda {

extern constinit const KernelDef matmul_v3_conflict_free{
    .name = "matmul_v3_conflict_free",
    .op = "dot",
    .device = DeviceKind::kCuda,
    .order = "fma_chain",
    .doc = "rung 3: shared tiles, coalesced, free of conflicts",
    .priority = -2,
    .supports = rung_supports,
};

}  // namespace tegula::cuda
