// Register outer products.
#include "tegula/kernels/cuda/describe/dot_query.h"

namespace tegula::cuda {

extern constinit const KernelDef matmul_v2{
    .name = "matmul_v2",
    .op = "dot",
    .device = DeviceKind::kCuda,
    .order = "fma_chain",
    .doc = "rung 2: register outer products, 2N^3/V reads",
    .priority = -5,
    .supports = rung_supports,
};

}  // namespace tegula::cuda
