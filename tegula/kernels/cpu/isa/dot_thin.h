// A contraction with few rows reads b once and does little else: no packing, b straight from where
// it lies, at the speed of memory.
#pragma once

#include "tegula/kernels/cpu/common/contraction.h"
#include "tegula/kernels/cpu/isa/vec.h"

namespace tegula::kernel::TEGULA_ISA_NS {

// The call of a contraction that is_thin (common/dot_plan.h).
// a_rows: f32[batch, m, k], filled here.
void dot_thin(const KernelCall& call, const Contraction& c, const TensorRef& a, const TensorRef& b,
              float* a_rows);

}  // namespace tegula::kernel::TEGULA_ISA_NS
