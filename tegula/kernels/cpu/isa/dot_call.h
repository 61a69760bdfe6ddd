// dot_packed for kernels that make products of their own.
#pragma once

#include "tegula/kernels/cpu/common/contraction.h"
#include "tegula/kernels/cpu/isa/vec.h"

namespace tegula::kernel::TEGULA_ISA_NS {

// The contraction of a and b into call.out[0], with call.in[2] as its bias or its sums so far;
// workspace: packed_bytes (common/dot_thin_plan.h).
void dot_packed_call(const KernelCall& call, const Contraction& c, const TensorRef& a,
                     const TensorRef& b);

}  // namespace tegula::kernel::TEGULA_ISA_NS
