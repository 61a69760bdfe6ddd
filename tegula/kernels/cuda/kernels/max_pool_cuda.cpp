// A thread a window.
#include "tegula/kernels/cuda/describe/check.h"
#include "tegula/kernels/cuda/pool_params.h"

namespace tegula::cuda {

extern constinit const KernelDef max_pool_cuda{
    .name = "max_pool_cuda",
    .op = "max_pool",
    .device = DeviceKind::kCuda,
    .order = "exact",
    .doc = "a thread a window",
    .supports =
        [](const KernelQuery& q) {
          const DType t = q.in[0].dtype;
          return (t == DType::kF32 || t == DType::kF64 || t == DType::kBF16 || t == DType::kF16) &&
                 q.in[0].rank <= kPoolDims + 2;
        },
};

}  // namespace tegula::cuda
