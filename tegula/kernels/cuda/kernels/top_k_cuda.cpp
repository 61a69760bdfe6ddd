// Selection, one pass over the row for each of the k; a warp per row.
#include "tegula/kernels/cuda/describe/check.h"

namespace tegula::cuda {

extern constinit const KernelDef top_k_cuda{
    .name = "top_k_cuda",
    .op = "top_k",
    .device = DeviceKind::kCuda,
    .order = "exact",
    .doc = "selection, one pass over the row for each of the k; a warp per row",
    .supports = [](const KernelQuery& q) { return q.in[0].dtype == DType::kF32; },
};

}  // namespace tegula::cuda
