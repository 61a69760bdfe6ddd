// Logits of some tokens at a time, in 16 bits.
#include "tegula/kernels/cuda/describe/cross_entropy_query.h"

namespace tegula::cuda {

extern constinit const KernelDef linear_cross_entropy_cuda{
    .name = "linear_cross_entropy_cuda",
    .op = "linear_cross_entropy",
    .device = DeviceKind::kCuda,
    .order = "narrow_logits",
    .doc = "logits of some tokens at a time, in 16 bits",
    .priority = 100,
    .supports = passes<check_cross_entropy<CrossEntropyPart::kForward>>,
    .check = check_cross_entropy<CrossEntropyPart::kForward>,
    .workspace_bytes = cross_entropy_workspace_bytes<CrossEntropyPart::kForward>,
};

}  // namespace tegula::cuda
