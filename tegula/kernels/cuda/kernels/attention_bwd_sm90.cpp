// Gradients of attention on Hopper.
#include "tegula/kernels/cuda/describe/attention_bwd_query.h"

namespace tegula::cuda {

extern constinit const KernelDef attention_bwd_sm90 = bwd_kernel<choose_bwd_sm90, false>(
    {.name = "attention_bwd_sm90",
     .order = "sm90_added",
     .doc = "wgmma and tensor copies; up to head_dim 128 dq is summed over key tiles as they come",
     .priority = 100});

}  // namespace tegula::cuda
