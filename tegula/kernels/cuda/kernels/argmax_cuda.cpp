// A warp per row.
#include "tegula/kernels/cpu/common/lines.h"
#include "tegula/kernels/cuda/describe/check.h"

namespace tegula::cuda {

extern constinit const KernelDef argmax_cuda{
    .name = "argmax_cuda",
    .op = "argmax",
    .device = DeviceKind::kCuda,
    .order = "exact",
    .doc = "a warp per row",
    .supports = [](const KernelQuery& q) { return kernel::has_line_type(q.in[0].dtype); },
};

}  // namespace tegula::cuda
