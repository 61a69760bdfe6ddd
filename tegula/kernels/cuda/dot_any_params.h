// Passed by value by a launch of dot_any.
#pragma once

#include "tegula/kernels/cuda/strided_params.h"

namespace tegula::cuda {

// Loops have the strides of a (0), b (1) and the output (2); `start` has the output's strides.
struct DotAnyParams {
  const void *a, *b;
  const void* start;  // null: chains start from 0
  void* out;
  LoopParams batch, m, n, k;
  LoopParams start_batch, start_m, start_n;  // strides of start (0)
  int n_shards;                              // of k: 1, 2, 4 or 8
};

}  // namespace tegula::cuda
