#include "tegula/kernels/cuda/plugin/attention_bwd_launch.h"

namespace tegula::cuda {

extern constinit const KernelLaunch attention_f32_bwd_ordered_sm90_launch{
    "attention_f32_bwd_ordered_sm90", bwd_launch<choose_bwd_sm90, true>};

}  // namespace tegula::cuda
