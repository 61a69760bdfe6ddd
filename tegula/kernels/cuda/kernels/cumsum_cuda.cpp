// A chain per line.
#include "tegula/kernels/cpu/common/lines.h"
#include "tegula/kernels/cuda/describe/check.h"

namespace tegula::cuda {

extern constinit const KernelDef cumsum_cuda{
    .name = "cumsum_cuda",
    .op = "cumsum",
    .device = DeviceKind::kCuda,
    .order = "chain",
    .doc = "a chain per line",
    .supports = [](const KernelQuery& q) { return kernel::has_line_type(q.in[0].dtype); },
};

}  // namespace tegula::cuda
