// Launches of cross-entropies: products by the kernels of `dot`, rows by one of their own.
#pragma once

#include "tegula/kernels/cuda/describe/cross_entropy_query.h"
#include "tegula/kernels/cuda/plugin/plain.h"

namespace tegula::cuda {

Status launch_cross_entropy(const DeviceCall& call, CrossEntropyPart part, const Stream& to);

}  // namespace tegula::cuda
