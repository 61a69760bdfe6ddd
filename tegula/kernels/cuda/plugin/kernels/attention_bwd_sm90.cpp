// Gradients of attention on Hopper.
#include "tegula/kernels/cuda/plugin/attention_bwd_call.h"

namespace tegula::cuda {

extern constinit const KernelDef attention_bwd_sm90{
    .name = "attention_bwd_sm90",
    .op = "attention_bwd",
    .device = DeviceKind::kCuda,
    .order = "sm90_added",
    .doc = "wgmma and tensor copies; up to head_dim 128 dq is summed over key tiles as they come",
    .priority = 100,
    .supports =
        [](const KernelQuery& q) {
          return device_capability() == 90 && bwd_supports<choose_attention_bwd, false>(q, false);
        },
    .workspace_bytes = bwd_workspace_bytes<choose_attention_bwd, false>,
    .launch = launch_into_queue<launch_bwd<choose_attention_bwd, false>>,
};

}  // namespace tegula::cuda
