// Chains of 64 elements, joined in a fixed order.
#include "tegula/kernels/cuda/describe/reduce_query.h"

namespace tegula::cuda {

extern constinit const KernelDef reduce_prod_cuda =
    reduce_kernel("reduce_prod_cuda", "reduce_prod");

}  // namespace tegula::cuda
