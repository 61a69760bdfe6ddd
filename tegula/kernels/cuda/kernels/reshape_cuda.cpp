// Elements in row-major order from one layout to another.
#include "tegula/kernels/cuda/describe/check.h"

namespace tegula::cuda {

extern constinit const KernelDef reshape_cuda{
    .name = "reshape_cuda",
    .op = "reshape",
    .device = DeviceKind::kCuda,
    .order = "exact",
    .doc = "elements in row-major order from one layout to another",
    .supports = [](const KernelQuery&) { return true; },
};

}  // namespace tegula::cuda
