// Shared by the readable rungs of the matmul ladder: the calls that they serve.
#pragma once

#include "tegula/kernels/cpu/common/contraction.h"

namespace tegula::kernel {

inline constexpr int kLadderB1 = 32;  // b1: rows and columns of a cache tile
inline constexpr int kLadderV1 = 4;   // v1: rows of a register tile; v2 is two vectors

// Row-major f32 matrices, one batch, nothing after the sum.
bool ladder_supports(const KernelQuery& q);
// The contraction of a call that they support.
Contraction ladder_contraction(const KernelCall& call);

}  // namespace tegula::kernel
