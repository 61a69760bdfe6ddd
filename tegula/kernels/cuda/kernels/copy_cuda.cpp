// Elements between any strides, 16 bytes at a time where they lie so.
#include "tegula/kernels/cuda/describe/check.h"

namespace tegula::cuda {

extern constinit const KernelDef copy_cuda{
    .name = "copy_cuda",
    .op = "copy",
    .device = DeviceKind::kCuda,
    .order = "exact",
    .doc = "elements between any strides, 16 bytes at a time where they lie so",
    .supports = [](const KernelQuery&) { return true; },
};

}  // namespace tegula::cuda
