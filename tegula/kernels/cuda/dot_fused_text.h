// The text of a product with an epilogue (matmul_fused_sm90.cuh): a tile program, and the kernel
// around it.
#pragma once

#include <string>

#include "tegula/kernels/cuda/tile_layout.h"

namespace tegula::cuda {

// Its entry. It takes two tensor maps, MatmulSm90Params and the words of the call's params.
inline constexpr const char* kFusedEntry = "matmul_fused_sm90";
inline constexpr int kPieceColumns = 8;  // that a thread takes at once

// The text of a program without rows, whose input 0 is given (TileAccess::kGiven).
std::string dot_fused_text(const tile::Program& p, const TileCall& call);

}  // namespace tegula::cuda
