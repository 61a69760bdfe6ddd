// Tiles by a bitonic network in shared memory, then merges of neighbours.
#include "tegula/kernels/cpu/common/lines.h"
#include "tegula/kernels/cuda/describe/sort_query.h"

namespace tegula::cuda {

extern constinit const KernelDef sort_cuda{
    .name = "sort_cuda",
    .op = "sort",
    .device = DeviceKind::kCuda,
    .order = "exact",
    .doc = "tiles by a bitonic network, then merges of neighbours",
    .supports = [](const KernelQuery& q) { return kernel::has_line_type(q.in[0].dtype); },
    .workspace_bytes = [](const KernelQuery& q) { return SortSizes(q.in[0]).workspace_bytes(); },
};

}  // namespace tegula::cuda
