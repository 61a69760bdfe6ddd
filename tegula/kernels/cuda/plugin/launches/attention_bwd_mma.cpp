#include "tegula/kernels/cuda/plugin/attention_bwd_launch.h"

namespace tegula::cuda {

extern constinit const KernelLaunch attention_bwd_mma_launch{"attention_bwd_mma",
                                                             bwd_launch<choose_bwd_mma, false>};

}  // namespace tegula::cuda
