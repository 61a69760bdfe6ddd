// Chains of 64 elements, joined in a fixed order.
#include "tegula/kernels/cuda/describe/check.h"
#include "tegula/kernels/cuda/describe/reduce_query.h"

namespace tegula::cuda {

extern constinit const KernelDef reduce_max_cuda{
    .name = "reduce_max_cuda",
    .op = "reduce_max",
    .device = DeviceKind::kCuda,
    .order = "chunks64",
    .doc = "chains of 64 elements, joined in a fixed order",
    .supports = check_reduce,
    .workspace_bytes = reduce_workspace_bytes,
};

}  // namespace tegula::cuda
