// Shared tiles, fetched by neighbours.
#include "tegula/kernels/cuda/describe/dot_query.h"

namespace tegula::cuda {

extern constinit const KernelDef matmul_v3_coalesced{
    .name = "matmul_v3_coalesced",
    .op = "dot",
    .device = DeviceKind::kCuda,
    .order = "fma_chain",
    .doc = "rung 3: shared tiles, coalesced",
    .priority = -3,
    .supports = rung_supports,
};

}  // namespace tegula::cuda
