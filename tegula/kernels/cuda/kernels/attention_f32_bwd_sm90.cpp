// Gradients of attention of f32 tensors on Hopper.
#include "tegula/kernels/cuda/describe/attention_bwd_query.h"

namespace tegula::cuda {

extern constinit const KernelDef attention_f32_bwd_sm90 = bwd_kernel<choose_bwd_sm90, false, true>(
    {.name = "attention_f32_bwd_sm90",
     .order = "sm90_f32_added",
     .doc = "f32 as three bf16 parts, six products by wgmma; dq is summed as it comes",
     .priority = 100});

}  // namespace tegula::cuda
