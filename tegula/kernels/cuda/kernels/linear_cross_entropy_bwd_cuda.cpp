// Logits again, in 16 bits, and turned into their gradient.
#include "tegula/kernels/cuda/describe/cross_entropy_query.h"

namespace tegula::cuda {

extern constinit const KernelDef linear_cross_entropy_bwd_cuda{
    .name = "linear_cross_entropy_bwd_cuda",
    .op = "linear_cross_entropy_bwd",
    .device = DeviceKind::kCuda,
    .order = "narrow_logits",
    .doc = "logits again, in 16 bits, and turned into their gradient",
    .priority = 100,
    .supports = passes<check_cross_entropy<CrossEntropyPart::kBackward>>,
    .check = check_cross_entropy<CrossEntropyPart::kBackward>,
    .workspace_bytes = cross_entropy_workspace_bytes<CrossEntropyPart::kBackward>,
};

}  // namespace tegula::cuda
