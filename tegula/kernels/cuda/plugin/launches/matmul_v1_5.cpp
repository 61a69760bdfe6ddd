#include "tegula/kernels/cuda/plugin/matmul_rung.h"

namespace tegula::cuda {

extern constinit const KernelLaunch matmul_v1_5_launch{
    "matmul_v1_5", launch_into_queue<[](const DeviceCall& c) { return launch_rung(c, "v1_5"); }>};

}  // namespace tegula::cuda
