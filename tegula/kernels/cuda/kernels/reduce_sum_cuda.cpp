// Chains of 128 elements, joined in order.
#include "tegula/kernels/cuda/describe/check.h"
#include "tegula/kernels/cuda/describe/reduce_query.h"

namespace tegula::cuda {

extern constinit const KernelDef reduce_sum_cuda{
    .name = "reduce_sum_cuda",
    .op = "reduce_sum",
    .device = DeviceKind::kCuda,
    .order = "chunks128",
    .doc = "chains of 128 elements, joined in order",
    .supports = check_reduce,
    .workspace_bytes = reduce_workspace_bytes,
};

}  // namespace tegula::cuda
