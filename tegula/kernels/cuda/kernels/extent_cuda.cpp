// A number that the host knows when the extents are known.
#include "tegula/kernels/cuda/describe/check.h"

namespace tegula::cuda {

extern constinit const KernelDef extent_cuda{
    .name = "extent_cuda",
    .op = "extent",
    .device = DeviceKind::kCuda,
    .order = "exact",
    .doc = "written anew whenever the extents change",
    .supports = [](const KernelQuery&) { return true; },
};

}  // namespace tegula::cuda
