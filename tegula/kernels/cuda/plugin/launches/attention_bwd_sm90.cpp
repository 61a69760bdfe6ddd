#include "tegula/kernels/cuda/plugin/attention_bwd_launch.h"

namespace tegula::cuda {

extern constinit const KernelLaunch attention_bwd_sm90_launch{"attention_bwd_sm90",
                                                              bwd_launch<choose_bwd_sm90, false>};

}  // namespace tegula::cuda
