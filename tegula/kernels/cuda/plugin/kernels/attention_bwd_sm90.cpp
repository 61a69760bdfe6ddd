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
    .supports = [](const KernelQuery& q) { return bwd_supports(q, false); },
    .workspace_bytes = bwd_workspace_bytes,
    .launch = launch_into_queue<launch_bwd>,
};

}  // namespace tegula::cuda
