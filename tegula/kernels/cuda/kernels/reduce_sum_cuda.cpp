// Chains of 64 elements, joined in a fixed order.
#include "tegula/kernels/cuda/describe/reduce_query.h"

namespace tegula::cuda {

extern constinit const KernelDef reduce_sum_cuda = reduce_kernel("reduce_sum_cuda", "reduce_sum");

}  // namespace tegula::cuda
