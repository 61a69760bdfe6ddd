// The bottom rung in f32: one output a thread.
#include "tegula/kernels/cuda/describe/dot_query.h"

namespace tegula::cuda {

extern constinit const KernelDef matmul_v1{
    .name = "matmul_v1",
    .op = "dot",
    .device = DeviceKind::kCuda,
    .order = "fma_chain",
    .doc = "rung 1: one output a thread, 2N^3 reads",
    .priority = -7,
    .supports = rung_supports,
};

}  // namespace tegula::cuda
