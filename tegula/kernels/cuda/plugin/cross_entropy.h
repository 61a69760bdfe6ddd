// Launches of cross-entropies: products by the kernels of `dot`, rows by one of their own.
#pragma once

#include "tegula/kernels/cuda/cross_entropy_params.h"
#include "tegula/kernels/cuda/describe/cross_entropy_query.h"
#include "tegula/kernels/cuda/plugin/plain.h"

namespace tegula::cuda {

// Tokens from `first` on, whose logits lie at the workspace's beginning.
struct CrossEntropyRows {
  CrossEntropyParams p{};
  CrossEntropyRows(const DeviceCall& call, CrossEntropyPart part, const CrossEntropyShape& s);
  void start_at(int64_t first, const TensorRef& targets);
};

// Rows of `v` logits: steps of their ring in shared memory.
int64_t cross_entropy_slots(const Target& gpu, int64_t v);

Status launch_cross_entropy(const DeviceCall& call, CrossEntropyPart part, const Stream& to);

}  // namespace tegula::cuda
