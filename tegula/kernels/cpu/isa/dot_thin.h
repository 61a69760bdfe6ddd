// A contraction with few rows reads b once and does little else: no packing, b straight from where
// it lies, at the speed of memory.
#pragma once

#include "tegula/kernels/cpu/common/contraction.h"
#include "tegula/kernels/cpu/isa/vec.h"

namespace tegula::kernel::TEGULA_ISA_NS {

inline constexpr int kThinRows = 4;

// Whether dot_thin does it: at most kThinRows rows, b contiguous along n or k, and rows of a that
// fit in `a_floats`.
bool dot_is_thin(const Contraction& c, int64_t a_floats);
// a_rows: f32[batch, m, k], filled here.
void dot_thin(const KernelCall& call, const Contraction& c, const TensorRef& a, const TensorRef& b,
              float* a_rows);

}  // namespace tegula::kernel::TEGULA_ISA_NS
