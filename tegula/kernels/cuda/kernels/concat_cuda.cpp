// Each operand into its piece of the result.
#include "tegula/kernels/cuda/describe/check.h"

namespace tegula::cuda {

extern constinit const KernelDef concat_cuda{
    .name = "concat_cuda",
    .op = "concat",
    .device = DeviceKind::kCuda,
    .order = "exact",
    .doc = "each operand into its piece of the result",
    .supports = [](const KernelQuery&) { return true; },
};

}  // namespace tegula::cuda
