// Launches of reductions over any dims.
#pragma once

#include "tegula/kernels/cuda/plugin/plain.h"

namespace tegula::cuda {

// op: 0 sum, 1 max, 2 min, 3 prod, as reduce.cu numbers them.
Status launch_reduce(const DeviceCall& call, int op, const Stream& to);

// One chain for each result, of parameters that are filled in.
Status launch_chunks(ReduceParams p, int op, DType t, const Stream& to);

// Parts that are there become the results.
Status launch_parts(const ReduceParams& p, int op, DType t, const Stream& to);

}  // namespace tegula::cuda
