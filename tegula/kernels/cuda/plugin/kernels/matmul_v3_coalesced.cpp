// Shared tiles, fetched by neighbours.
#include "tegula/kernels/cuda/plugin/dot_call.h"

namespace tegula::cuda {

extern constinit const KernelDef matmul_v3_coalesced{
    .name = "matmul_v3_coalesced",
    .op = "dot",
    .device = DeviceKind::kCuda,
    .order = "fma_chain",
    .doc = "rung 3: shared tiles, coalesced",
    .priority = -3,
    .supports = rung_supports,
    .launch = launch_into_queue<[](const DeviceCall& c) { return launch_rung(c, "v3_coalesced"); }>,
};

}  // namespace tegula::cuda
