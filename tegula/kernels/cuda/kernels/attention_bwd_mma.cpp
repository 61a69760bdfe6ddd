// Gradients of attention by mma.sync: what GPUs before and beside Hopper get.
#include "tegula/kernels/cuda/describe/attention_bwd_query.h"

namespace tegula::cuda {

extern constinit const KernelDef attention_bwd_mma =
    bwd_kernel<choose_bwd_mma, false>({.name = "attention_bwd_mma",
                                       .order = "mma_added",
                                       .doc = "mma.sync; dq is summed over key tiles as they come",
                                       .priority = 50});

}  // namespace tegula::cuda
