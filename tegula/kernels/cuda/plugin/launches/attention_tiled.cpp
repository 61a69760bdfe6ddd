#include "tegula/kernels/cuda/plugin/attention_rung.h"

namespace tegula::cuda {

extern constinit const KernelLaunch attention_tiled_launch{"attention_tiled",
                                                           prepare_by<launch_rung<false>>};

}  // namespace tegula::cuda
