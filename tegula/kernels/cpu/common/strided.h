// Moving strided data: what copy, concat and pad are made of.
#pragma once

#include "tegula/kernels/kernel.h"

namespace tegula::kernel {

// to[i] = from[i] for tensors of one shape and element size; any strides. Threads share rows out.
void move_strided(const TensorRef& from, const TensorRef& to, ThreadPool& pool);

// The part of t that begins at `start` of dim `dim`, every `step`-th element, `size` of them.
TensorRef part_of(const TensorRef& t, int dim, int64_t start, int64_t size, int64_t step = 1);

// to[…] = the element that `value` points at (size_bytes(to.dtype) bytes).
void fill_strided(const void* value, const TensorRef& to, ThreadPool& pool);

}  // namespace tegula::kernel
