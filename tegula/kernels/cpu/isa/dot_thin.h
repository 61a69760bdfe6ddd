// A contraction with few rows (isa/dot_thin_tasks.h), in the order "fma_chain".
#pragma once

#include "tegula/kernels/cpu/common/contraction.h"
#include "tegula/kernels/cpu/isa/vec.h"

namespace tegula::kernel::TEGULA_ISA_NS {

// The call of a contraction that is_thin (common/dot_plan.h).
void dot_thin(const KernelCall& call, const Contraction& c, const TensorRef& a, const TensorRef& b);

}  // namespace tegula::kernel::TEGULA_ISA_NS
