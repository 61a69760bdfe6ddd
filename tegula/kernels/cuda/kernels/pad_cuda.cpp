// Fills what is new, then copies.
#include "tegula/kernels/cuda/describe/check.h"

namespace tegula::cuda {

extern constinit const KernelDef pad_cuda{
    .name = "pad_cuda",
    .op = "pad",
    .device = DeviceKind::kCuda,
    .order = "exact",
    .doc = "fills what is new, then copies",
    .supports = [](const KernelQuery&) { return true; },
};

}  // namespace tegula::cuda
