#include "tegula/kernels/cuda/plugin/matmul_rung.h"

namespace tegula::cuda {

extern constinit const KernelLaunch matmul_v2_launch{
    "matmul_v2", launch_into_queue<[](const DeviceCall& c) { return launch_rung(c, "v2"); }>};

}  // namespace tegula::cuda
