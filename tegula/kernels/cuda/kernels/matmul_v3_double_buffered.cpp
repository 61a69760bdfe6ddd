// The fastest of the f32 rungs: the next tile is fetched meanwhile.
#include "tegula/kernels/cuda/describe/dot_query.h"

namespace tegula::cuda {

extern constinit const KernelDef matmul_v3_double_buffered{
    .name = "matmul_v3_double_buffered",
    .op = "dot",
    .device = DeviceKind::kCuda,
    .order = "fma_chain",
    .doc = "rung 3: shared tiles, double-buffered",
    .priority = 10,
    .supports = rung_supports,
};

}  // namespace tegula::cuda
