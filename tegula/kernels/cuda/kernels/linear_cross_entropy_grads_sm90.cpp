// The head whose first product writes exponentials, so that no pass goes over the logits.
#include "tegula/kernels/cuda/describe/cross_entropy_query.h"

namespace tegula::cuda {

extern constinit const KernelDef linear_cross_entropy_grads_sm90{
    .name = "linear_cross_entropy_grads_sm90",
    .op = "linear_cross_entropy_grads",
    .device = DeviceKind::kCuda,
    .order = "narrow_exponentials",
    .doc = "exponentials once, in 16 bits, by the logits' product: no pass over logits",
    .priority = 110,
    .supports = passes<check_scaled_head>,
    .check = check_scaled_head,
    .workspace_bytes = scaled_head_workspace_bytes,
};

}  // namespace tegula::cuda
