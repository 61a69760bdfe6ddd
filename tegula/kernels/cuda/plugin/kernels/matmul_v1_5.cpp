// V outputs of a row a thread, rows of b read again for each.
#include "tegula/kernels/cuda/plugin/dot_call.h"

namespace tegula::cuda {

extern constinit const KernelDef matmul_v1_5{
    .name = "matmul_v1_5",
    .op = "dot",
    .device = DeviceKind::kCuda,
    .order = "fma_chain",
    .doc = "rung 1.5: V x V outputs, row by row",
    .priority = -6,
    .supports = rung_supports,
    .launch = launch_into_queue<[](const DeviceCall& c) { return launch_rung(c, "v1_5"); }>,
};

}  // namespace tegula::cuda
