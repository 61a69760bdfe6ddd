// Tiles in shared memory, fetched together.
#include "tegula/kernels/cuda/describe/dot_query.h"

namespace tegula::cuda {

extern constinit const KernelDef matmul_v3{
    .name = "matmul_v3",
    .op = "dot",
    .device = DeviceKind::kCuda,
    .order = "fma_chain",
    .doc = "rung 3: shared tiles, 2N^3/L global reads",
    .priority = -4,
    .supports = rung_supports,
};

}  // namespace tegula::cuda
