// What the readable rungs of the matmul ladder share: which calls they serve.
#pragma once

#include "tegula/kernels/cpu/common/contraction.h"

namespace tegula::kernel {

inline constexpr int kLadderB1 = 32;  // b1: rows and columns of a cache tile
inline constexpr int kLadderV1 = 4;   // v1: rows of a register tile; v2 is two vectors

// Row-major f32 matrices, one batch, nothing after the sum.
bool ladder_supports(const KernelQuery& q);
// Of a call that they support.
Contraction ladder_contraction(const KernelCall& call);

}  // namespace tegula::kernel
