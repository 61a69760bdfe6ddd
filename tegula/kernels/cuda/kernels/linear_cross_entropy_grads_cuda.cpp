// Logits once, in 16 bits: three products, not four.
#include "tegula/kernels/cuda/describe/cross_entropy_query.h"

namespace tegula::cuda {

extern constinit const KernelDef linear_cross_entropy_grads_cuda{
    .name = "linear_cross_entropy_grads_cuda",
    .op = "linear_cross_entropy_grads",
    .device = DeviceKind::kCuda,
    .order = "narrow_logits",
    .doc = "logits once, in 16 bits: three products, not four",
    .priority = 100,
    .supports = passes<check_cross_entropy<CrossEntropyPart::kGrads>>,
    .check = check_cross_entropy<CrossEntropyPart::kGrads>,
    .workspace_bytes = cross_entropy_workspace_bytes<CrossEntropyPart::kGrads>,
};

}  // namespace tegula::cuda
