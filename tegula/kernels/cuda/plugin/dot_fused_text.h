// The text of a product with an epilogue (matmul_fused_sm90.cuh).
#pragma once

#include "tegula/kernels/cuda/describe/dot_fused_query.h"

namespace tegula::cuda {

// The program as an epilogue and the kernel around it. Its entry is kFusedEntry; it takes two
// tensor maps, MatmulSm90Params and the words of `tile.params`.
inline constexpr const char* kFusedEntry = "matmul_fused_sm90";
std::string dot_fused_text(const tile::Program& p, const DotFusedCall& call);

}  // namespace tegula::cuda
