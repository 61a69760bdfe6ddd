// Rows are added in the order of positions, by sorting ids and places.
#include "tegula/kernels/cpu/common/embedding.h"
#include "tegula/kernels/cuda/describe/check.h"
#include "tegula/kernels/cuda/describe/scatter_query.h"

namespace tegula::cuda {

extern constinit const KernelDef embedding_bwd_cuda{
    .name = "embedding_bwd_cuda",
    .op = "embedding_bwd",
    .device = DeviceKind::kCuda,
    .order = "row_chain",
    .doc = "rows are added in the order of positions",
    .supports =
        [](const KernelQuery& q) {
          const DType t = q.in[0].dtype;
          return (t == DType::kF32 || t == DType::kBF16) && t == q.out[0].dtype &&
                 kernel::ids_supported(q.in[1], q.in[0]) && q.out[0].rank == 2 &&
                 scatter_supported(q.out[0].shape[0]);
        },
    .workspace_bytes =
        [](const KernelQuery& q) {
          return ScatterSizes(kernel::GatherCall({}, q.out[0], q.in[1], q.in[0])).workspace_bytes();
        },
};

}  // namespace tegula::cuda
