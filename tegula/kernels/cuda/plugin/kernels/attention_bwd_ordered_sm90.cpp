// Gradients of attention on Hopper, with the same bits in every run.
#include "tegula/kernels/cuda/plugin/attention_bwd_call.h"

namespace tegula::cuda {

extern constinit const KernelDef attention_bwd_ordered_sm90 = bwd_kernel<choose_attention_bwd,
                                                                         true>(
    {.name = "attention_bwd_ordered_sm90",
     .order = "sm90_in_order",
     .doc =
         "wgmma and tensor copies; up to head_dim 128 dq is summed over key tiles in their order",
     .priority = 90});

}  // namespace tegula::cuda
