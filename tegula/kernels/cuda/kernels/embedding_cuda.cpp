// Rows of the table are copied.
#include "tegula/kernels/cpu/common/embedding.h"
#include "tegula/kernels/cuda/describe/check.h"

namespace tegula::cuda {

extern constinit const KernelDef embedding_cuda{
    .name = "embedding_cuda",
    .op = "embedding",
    .device = DeviceKind::kCuda,
    .order = "exact",
    .doc = "rows of the table are copied",
    .supports =
        [](const KernelQuery& q) {
          return q.in[0].rank == 2 && kernel::ids_supported(q.in[1], q.out[0]) &&
                 q.in[0].dtype == q.out[0].dtype;
        },
};

}  // namespace tegula::cuda
