// Ids in ascending order, in place of x or on a copy.
#include "tegula/kernels/cpu/common/gather.h"
#include "tegula/kernels/cuda/describe/check.h"

namespace tegula::cuda {

extern constinit const KernelDef scatter_cuda{
    .name = "scatter_cuda",
    .op = "scatter",
    .device = DeviceKind::kCuda,
    .order = "row_chain",
    .doc = "ids in ascending order, in place of x or on a copy",
    .supports =
        [](const KernelQuery& q) {
          const DType t = q.in[0].dtype;
          const bool combines =
              t == DType::kF32 || t == DType::kF64 || t == DType::kI32 || t == DType::kI64;
          return (combines || q.attrs->str("mode") == "set") && kernel::gather_supported(q);
        },
};

}  // namespace tegula::cuda
