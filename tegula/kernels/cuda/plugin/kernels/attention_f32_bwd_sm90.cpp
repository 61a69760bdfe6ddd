// Gradients of attention of f32 tensors on Hopper.
#include "tegula/kernels/cuda/plugin/attention_bwd_call.h"

namespace tegula::cuda {

extern constinit const KernelDef attention_f32_bwd_sm90{
    .name = "attention_f32_bwd_sm90",
    .op = "attention_bwd",
    .device = DeviceKind::kCuda,
    .order = "sm90_f32_added",
    .doc = "f32 as three bf16 parts, six products by wgmma; dq is summed as it comes",
    .priority = 100,
    .supports =
        [](const KernelQuery& q) {
          return device_capability() == 90 && bwd_supports<choose_attention_bwd, false>(q, true);
        },
    .workspace_bytes = bwd_workspace_bytes<choose_attention_bwd, false>,
    .launch = launch_into_queue<launch_bwd<choose_attention_bwd, false>>,
};

}  // namespace tegula::cuda
