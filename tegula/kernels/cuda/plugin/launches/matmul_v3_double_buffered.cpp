#include "tegula/kernels/cuda/plugin/matmul_rung.h"

namespace tegula::cuda {

extern constinit const KernelLaunch matmul_v3_double_buffered_launch{
    "matmul_v3_double_buffered",
    launch_into_queue<[](const DeviceCall& c) { return launch_rung(c, "v3_double_buffered"); }>};

}  // namespace tegula::cuda
