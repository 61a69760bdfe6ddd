// Which tile of C a number stands for.
#pragma once

#include "tegula/kernels/cuda/matmul_params.h"

namespace tegula::cuda {

struct TilePlace {
  int m, n;  // tiles down and across
};

__device__ inline TilePlace tile_place(const TileOrder& o, int index) {
  const int group = index / (o.group * o.tiles_n);
  const int within = index - group * o.group * o.tiles_n;
  const int rows = min(o.group, o.tiles_m - group * o.group);
  const int n = within / rows;
  return {group * o.group + within - n * rows, n};
}

// How many of the `n` from `first` on there are.
__device__ inline int inside(int first, int size, int n) { return max(0, min(n, size - first)); }

}  // namespace tegula::cuda
