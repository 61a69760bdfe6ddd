// Initial weights: each a function of (seed, name, index), whatever the order of creation.
#pragma once

#include "tegula/base/tensor.h"
#include "tegula/base/thread_pool.h"
#include "tegula/models/model.h"

namespace tegula {

// Fills an f32 tensor; normal values by Box–Muller on Philox: value i from bits 2i and 2i + 1 of
// the name's stream, the same on any number of threads.
void init_weight(const WeightSpec& spec, uint64_t seed, const TensorRef& out,
                 ThreadPool* pool = nullptr);

}  // namespace tegula
