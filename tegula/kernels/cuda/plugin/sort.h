// Launches of a stable sort, for the op and for what sorts its ids.
#pragma once

#include "tegula/kernels/cuda/describe/sort_query.h"
#include "tegula/kernels/cuda/plugin/lines.h"

namespace tegula::cuda {

// Rows in order, and where their elements were (i32).
struct Sorted {
  TensorRef values, places;
};

// One of two copies of x's shape that lie side by side in memory.
Sorted sorted_copy(const TensorRef& x, void* copies, int which);

// x's last dim in order; `copies` is used where rows are longer than a tile (SortSizes::merges),
// all but the last pass writing them in turn.
Status launch_sort(const TensorRef& x, const Sorted& result, void* copies, bool is_descending,
                   const Stream& to);

}  // namespace tegula::cuda
