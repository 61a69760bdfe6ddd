// Gradients of attention of f32 tensors on Hopper.
#include "tegula/kernels/cuda/plugin/attention_bwd_call.h"

namespace tegula::cuda {

extern constinit const KernelDef attention_f32_bwd_sm90 =
    bwd_kernel<choose_attention_bwd, false, true>(
        {.name = "attention_f32_bwd_sm90",
         .order = "sm90_f32_added",
         .doc = "f32 as three bf16 parts, six products by wgmma; dq is summed as it comes",
         .priority = 100});

}  // namespace tegula::cuda
