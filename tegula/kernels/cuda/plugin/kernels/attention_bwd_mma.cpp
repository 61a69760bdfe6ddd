// Gradients of attention by mma.sync: what GPUs before and beside Hopper get.
#include "tegula/kernels/cuda/plugin/attention_bwd_call.h"

namespace tegula::cuda {

extern constinit const KernelDef attention_bwd_mma{
    .name = "attention_bwd_mma",
    .op = "attention_bwd",
    .device = DeviceKind::kCuda,
    .order = "mma_added",
    .doc = "mma.sync; up to head_dim 128 dq is summed over key tiles as they come",
    .priority = 50,
    .supports =
        [](const KernelQuery& q) {
          return device_capability() >= 80 &&
                 bwd_supports<choose_attention_bwd_mma, false>(q, false);
        },
    .workspace_bytes = bwd_workspace_bytes<choose_attention_bwd_mma, false>,
    .launch = launch_into_queue<launch_bwd<choose_attention_bwd_mma, false>>,
};

}  // namespace tegula::cuda
