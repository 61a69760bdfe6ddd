#include "tegula/kernels/cuda/plugin/matmul_rung.h"

namespace tegula::cuda {

extern constinit const KernelLaunch matmul_v2_launch{
    "matmul_v2",
    prepare_by<[](const DeviceCall& c, const Stream& to) { return launch_rung(c, to, "v2"); }>};

}  // namespace tegula::cuda
