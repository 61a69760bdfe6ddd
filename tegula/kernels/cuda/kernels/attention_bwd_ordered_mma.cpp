// Gradients of attention by mma.sync, with the same bits in every run.
#include "tegula/kernels/cuda/describe/attention_bwd_query.h"

namespace tegula::cuda {

extern constinit const KernelDef attention_bwd_ordered_mma =
    bwd_kernel<choose_bwd_mma, true>({.name = "attention_bwd_ordered_mma",
                                      .order = "mma_in_order",
                                      .doc = "mma.sync; dq is summed over key tiles in their order",
                                      .priority = 40});

}  // namespace tegula::cuda
