// A copy from starts that lie on the device.
#include "tegula/kernels/cuda/describe/check.h"

namespace tegula::cuda {

extern constinit const KernelDef dynamic_slice_cuda{
    .name = "dynamic_slice_cuda",
    .op = "dynamic_slice",
    .device = DeviceKind::kCuda,
    .order = "exact",
    .doc = "a copy from starts that lie on the device",
    .supports =
        [](const KernelQuery& q) {
          for (size_t i = 1; i < q.in.size(); ++i)
            if (q.in[i].dtype != q.in[1].dtype ||
                (q.in[i].dtype != DType::kI64 && q.in[i].dtype != DType::kI32))
              return false;
          return true;
        },
};

}  // namespace tegula::cuda
