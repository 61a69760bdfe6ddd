// Gradients of attention of f32 tensors on Hopper, with the same bits in every run.
#include "tegula/kernels/cuda/describe/attention_bwd_query.h"

namespace tegula::cuda {

extern constinit const KernelDef attention_f32_bwd_ordered_sm90 =
    bwd_kernel<choose_bwd_sm90, true, true>(
        {.name = "attention_f32_bwd_ordered_sm90",
         .order = "sm90_f32_in_order",
         .doc = "f32 as three bf16 parts, six products by wgmma; dq is summed over keys in order",
         .priority = 90});

}  // namespace tegula::cuda
