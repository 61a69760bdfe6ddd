// A binary search per value.
#include "tegula/kernels/cpu/common/lines.h"
#include "tegula/kernels/cuda/describe/check.h"

namespace tegula::cuda {

extern constinit const KernelDef searchsorted_cuda{
    .name = "searchsorted_cuda",
    .op = "searchsorted",
    .device = DeviceKind::kCuda,
    .order = "exact",
    .doc = "a binary search per value",
    .supports = [](const KernelQuery& q) { return kernel::has_line_type(q.in[0].dtype); },
};

}  // namespace tegula::cuda
