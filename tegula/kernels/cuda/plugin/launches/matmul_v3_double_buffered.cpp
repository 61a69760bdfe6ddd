#include "tegula/kernels/cuda/plugin/matmul_rung.h"

namespace tegula::cuda {

extern constinit const KernelLaunch matmul_v3_double_buffered_launch{
    "matmul_v3_double_buffered", prepare_by<[](const DeviceCall& c, const Stream& to) {
      return launch_rung(c, to, "v3_double_buffered");
    }>};

}  // namespace tegula::cuda
