// Slices are copied, an id outside gives zeros.
#include "tegula/kernels/cpu/common/gather.h"
#include "tegula/kernels/cuda/describe/check.h"

namespace tegula::cuda {

extern constinit const KernelDef gather_cuda{
    .name = "gather_cuda",
    .op = "gather",
    .device = DeviceKind::kCuda,
    .order = "exact",
    .doc = "slices are copied, an id outside gives zeros",
    .supports = [](const KernelQuery& q) { return kernel::gather_supported(q); },
};

}  // namespace tegula::cuda
