#include "tegula/kernels/cuda/plugin/matmul_rung.h"

namespace tegula::cuda {

extern constinit const KernelLaunch matmul_v1_5_launch{
    "matmul_v1_5",
    prepare_by<[](const DeviceCall& c, const Stream& to) { return launch_rung(c, to, "v1_5"); }>};

}  // namespace tegula::cuda
