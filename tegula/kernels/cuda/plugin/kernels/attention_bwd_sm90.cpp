// Gradients of attention on Hopper.
#include "tegula/kernels/cuda/plugin/attention_bwd_call.h"

namespace tegula::cuda {

extern constinit const KernelDef attention_bwd_sm90 = bwd_kernel<choose_attention_bwd, false>(
    {.name = "attention_bwd_sm90",
     .order = "sm90_added",
     .doc = "wgmma and tensor copies; up to head_dim 128 dq is summed over key tiles as they come",
     .priority = 100});

}  // namespace tegula::cuda
