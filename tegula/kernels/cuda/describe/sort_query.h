// Describes sort: rows longer than a tile are merged between two copies in the workspace.
#pragma once

#include "tegula/base/round.h"
#include "tegula/kernels/cuda/describe/check.h"
#include "tegula/kernels/cuda/sort_params.h"

namespace tegula::cuda {

struct SortSizes {
  int64_t elements, n, values_bytes, indices_bytes;

  explicit SortSizes(const TensorRef& x)
      : elements(x.numel()),
        n(x.shape[x.rank - 1]),
        values_bytes(round_up(elements * size_bytes(x.dtype), int64_t{256})),
        indices_bytes(round_up(elements * 4, int64_t{256})) {}
  int merges() const {
    int merges = 0;
    for (int64_t run = kSortTile; run < n; run *= 2) ++merges;
    return merges;
  }
  int64_t copy_bytes() const { return values_bytes + indices_bytes; }
  int64_t workspace_bytes() const { return std::min(merges(), 2) * copy_bytes(); }
};

}  // namespace tegula::cuda
