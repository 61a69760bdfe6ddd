// Whole sums within a group by dp4a, then a chain over the groups.
#include "tegula/kernels/cuda/describe/check.h"

namespace tegula::cuda {

extern constinit const KernelDef dot_i8_cuda{
    .name = "dot_i8_cuda",
    .op = "dot_i8",
    .device = DeviceKind::kCuda,
    .order = "i32_groups",
    .doc = "whole sums by dp4a, a chain over groups",
    .supports = [](const KernelQuery&) { return true; },
};

}  // namespace tegula::cuda
