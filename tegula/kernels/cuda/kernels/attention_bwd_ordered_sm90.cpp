// Gradients of attention on Hopper, with the same bits in every run.
#include "tegula/kernels/cuda/describe/attention_bwd_query.h"

namespace tegula::cuda {

extern constinit const KernelDef attention_bwd_ordered_sm90 = bwd_kernel<choose_bwd_sm90, true>(
    {.name = "attention_bwd_ordered_sm90",
     .order = "sm90_in_order",
     .doc =
         "wgmma and tensor copies; up to head_dim 128 dq is summed over key tiles in their order",
     .priority = 90});

}  // namespace tegula::cuda
