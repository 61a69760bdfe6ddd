// Ids in ascending order, in place of x or on a copy; what meets is sorted by its ids first.
#include "tegula/kernels/cuda/describe/check.h"
#include "tegula/kernels/cuda/describe/scatter_query.h"

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
          const auto dim = q.attrs->get_or<int64_t>("dim", 0);
          return (q.attrs->str("mode") == "set" ||
                  (combines && scatter_supported(q.out[0].shape[dim]))) &&
                 kernel::gather_supported(q);
        },
    .workspace_bytes =
        [](const KernelQuery& q) {
          if (q.attrs->str("mode") == "set") return int64_t{0};
          return ScatterSizes(kernel::GatherCall(*q.attrs, q.out[0], q.in[1], q.in[0]))
              .workspace_bytes();
        },
};

}  // namespace tegula::cuda
