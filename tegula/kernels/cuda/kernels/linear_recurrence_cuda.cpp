// A chain per line, out of tiles that the block copies.
#include "tegula/kernels/cpu/common/lines.h"
#include "tegula/kernels/cuda/describe/check.h"

namespace tegula::cuda {

extern constinit const KernelDef linear_recurrence_cuda{
    .name = "linear_recurrence_cuda",
    .op = "linear_recurrence",
    .device = DeviceKind::kCuda,
    .order = "chain",
    .doc = "a chain per line, out of tiles that the block copies",
    .supports = [](const KernelQuery& q) { return kernel::has_line_type(q.in[0].dtype); },
};

}  // namespace tegula::cuda
