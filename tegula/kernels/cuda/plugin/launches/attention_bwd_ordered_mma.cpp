#include "tegula/kernels/cuda/plugin/attention_bwd_launch.h"

namespace tegula::cuda {

extern constinit const KernelLaunch attention_bwd_ordered_mma_launch{
    "attention_bwd_ordered_mma", bwd_launch<choose_bwd_mma, true>};

}  // namespace tegula::cuda
