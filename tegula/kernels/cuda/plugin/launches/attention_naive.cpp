#include "tegula/kernels/cuda/plugin/attention_rung.h"

namespace tegula::cuda {

extern constinit const KernelLaunch attention_naive_launch{"attention_naive",
                                                           prepare_by<launch_rung<true>>};

}  // namespace tegula::cuda
