#include "tegula/kernels/cuda/plugin/matmul_rung.h"

namespace tegula::cuda {

extern constinit const KernelLaunch matmul_v1_launch{
    "matmul_v1",
    prepare_by<[](const DeviceCall& c, const Stream& to) { return launch_rung(c, to, "v1"); }>};

}  // namespace tegula::cuda
