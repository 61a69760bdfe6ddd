// A `dot_fused` call: one product on Hopper's tensor cores whose finished tiles go through a tile
// program (matmul_fused_sm90.cuh).
#pragma once

#include "tegula/kernels/cuda/describe/dot_query.h"
#include "tegula/kernels/cuda/tile_layout.h"

namespace tegula::cuda {

struct DotFusedCall {
  DotCall dot;  // without `out`: the product lies nowhere
  TileCall tile;
  int64_t flops = 0;
  MatmulVariant variant;
};

// Unsupported: batches of products, fewer rows than a tile has, columns no multiple of 8, and
// operands of the program that lie in more than the product's rows and columns.
Result<DotFusedCall> parse_dot_fused(const KernelQuery& q);

}  // namespace tegula::cuda
