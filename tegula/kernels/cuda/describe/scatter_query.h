// The rows that a scatter whose slices meet sorts in its workspace: rows of ids.
#pragma once

#include "tegula/kernels/cpu/common/gather.h"
#include "tegula/kernels/cuda/describe/sort_query.h"

namespace tegula::cuda {

struct ScatterSizes {
  TensorRef ids;  // i32 [outer, index], at the workspace's beginning; two copies follow

  explicit ScatterSizes(const kernel::GatherCall& c, void* workspace = nullptr) {
    ids.data = workspace, ids.dtype = DType::kI32, ids.rank = 2;
    ids.shape[0] = c.outer.count, ids.shape[1] = c.index.count;
    ids.stride[0] = c.index.count, ids.stride[1] = 1;
  }
  SortSizes sort() const { return SortSizes(ids); }
  int64_t workspace_bytes() const { return sort().values_bytes + 2 * sort().copy_bytes(); }
};

// An id is an int, and one more says that there is none.
inline bool scatter_supported(int64_t n) { return n < INT32_MAX; }

}  // namespace tegula::cuda
