// Scans by shuffles of lines in tiles.
#include "tegula/kernels/cpu/common/lines.h"
#include "tegula/kernels/cuda/describe/check.h"

namespace tegula::cuda {

extern constinit const KernelDef cummax_cuda{
    .name = "cummax_cuda",
    .op = "cummax",
    .device = DeviceKind::kCuda,
    .order = "exact",
    .doc = "scans by shuffles of lines in tiles",
    .supports = [](const KernelQuery& q) { return kernel::has_line_type(q.in[0].dtype); },
};

}  // namespace tegula::cuda
