// Writes the update; copies x only if it is not in place.
#include "tegula/kernels/cuda/describe/check.h"

namespace tegula::cuda {

extern constinit const KernelDef update_slice_cuda{
    .name = "update_slice_cuda",
    .op = "dynamic_update_slice",
    .device = DeviceKind::kCuda,
    .order = "exact",
    .doc = "writes the update; copies x only if it is not in place",
    .supports =
        [](const KernelQuery& q) {
          return q.in.size() == static_cast<size_t>(q.in[0].rank) + 2 &&
                 (q.in[0].rank == 0 || q.in[2].dtype == DType::kI64 ||
                  q.in[2].dtype == DType::kI32);
        },
};

}  // namespace tegula::cuda
