// V outputs of a row a thread, rows of b read again for each.
#include "tegula/kernels/cuda/describe/dot_query.h"

namespace tegula::cuda {

extern constinit const KernelDef matmul_v1_5{
    .name = "matmul_v1_5",
    .op = "dot",
    .device = DeviceKind::kCuda,
    .order = "fma_chain",
    .doc = "rung 1.5: V x V outputs, row by row",
    .priority = -6,
    .supports = rung_supports,
};

}  // namespace tegula::cuda
