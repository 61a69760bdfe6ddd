// Gradients of attention by mma.sync, with the same bits in every run.
#include "tegula/kernels/cuda/plugin/attention_bwd_call.h"

namespace tegula::cuda {

extern constinit const KernelDef attention_bwd_ordered_mma{
    .name = "attention_bwd_ordered_mma",
    .op = "attention_bwd",
    .device = DeviceKind::kCuda,
    .order = "mma_rows",
    .doc = "mma.sync; dq in a kernel of its own, so that all bits repeat",
    .priority = 40,
    .supports =
        [](const KernelQuery& q) {
          return device_capability() >= 80 &&
                 bwd_supports<choose_attention_bwd_mma, true>(q, false);
        },
    .workspace_bytes = bwd_workspace_bytes<choose_attention_bwd_mma, true>,
    .launch = launch_into_queue<launch_bwd<choose_attention_bwd_mma, true>>,
};

}  // namespace tegula::cuda
