// Several calls of a kernel as one launch, of blocks that follow each other (plugin/joinable.h).
#pragma once

#include "tegula/kernels/cuda/joined_params.h"
#include "tegula/kernels/cuda/ptx/types.cuh"

namespace tegula::cuda {

template <class Params, int kMost = kMostJoinedOf<sizeof(Params)>>
struct Joined {
  Params of[kMost];
  long long first[kMost];  // block of each; of those that are none, past the last
};

struct JoinedBlock {
  int call;             // that it belongs to
  u32 block, n_blocks;  // which of the call's blocks, and how many it has
};

template <class Params, int kMost>
__device__ __forceinline__ JoinedBlock joined_block(const Joined<Params, kMost>& p) {
  int k = 0;
#pragma unroll
  for (int step = 32; step > 0; step /= 2)
    if (k + step < kMost && blockIdx.x >= p.first[k + step]) k += step;
  const long long last = gridDim.x, next = k + 1 < kMost ? p.first[k + 1] : last;
  const u32 first = static_cast<u32>(p.first[k]);
  return {k, blockIdx.x - first, static_cast<u32>(next < last ? next : last) - first};
}

}  // namespace tegula::cuda
