// Initial weights: each a function of (seed, name, index), whatever the order of creation.
#pragma once

#include "tegula/base/tensor.h"
#include "tegula/models/model.h"

namespace tegula {

// Fills an f32 tensor; normal values by Box–Muller on Philox.
void init_weight(const WeightSpec& spec, uint64_t seed, const TensorRef& out);

}  // namespace tegula
