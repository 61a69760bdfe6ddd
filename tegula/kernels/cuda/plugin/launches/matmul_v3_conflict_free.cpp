#include "tegula/kernels/cuda/plugin/matmul_rung.h"

namespace tegula::cuda {

extern constinit const KernelLaunch matmul_v3_conflict_free_launch{
    "matmul_v3_conflict_free",
    launch_into_queue<[](const DeviceCall& c) { return launch_rung(c, "v3_conflict_free"); }>};

}  // namespace tegula::cuda
