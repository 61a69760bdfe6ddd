// Chains of 64 elements, joined in a fixed order.
#include "tegula/kernels/cuda/describe/reduce_query.h"

namespace tegula::cuda {

extern constinit const KernelDef reduce_min_cuda = reduce_kernel("reduce_min_cuda", "reduce_min");

}  // namespace tegula::cuda
