// Shared by `embedding` and its gradient: ids, and rows of a table.
#pragma once

#include "tegula/kernels/cpu/common/contraction.h"

namespace tegula::kernel {

// Positions are the dims of ids, flattened; `wide` has one more dim, the row: y or its gradient.
struct Lookup {
  Loops positions;  // strides of ids (kA) and of `wide` (kB)
  const TensorRef* ids;
  int64_t n_rows;

  Lookup(const TensorRef& ids_, const TensorRef& wide, int64_t rows) : ids(&ids_), n_rows(rows) {
    for (int d = 0; d < ids_.rank; ++d) {
      Factor f;
      f.extent = ids_.shape[d], f.stride[kA] = ids_.stride[d], f.stride[kB] = wide.stride[d];
      positions.add(f);
    }
  }
  // The row that position i asks for; -1 outside the table.
  int64_t row(int64_t i) const {
    const int64_t at = positions.offset(i, kA);
    const int64_t id = ids->dtype == DType::kI32 ? ids->as<int32_t>()[at] : ids->as<int64_t>()[at];
    return id >= 0 && id < n_rows ? id : -1;
  }
};

inline bool ids_supported(const TensorRef& ids, const TensorRef& wide) {
  return (ids.dtype == DType::kI32 || ids.dtype == DType::kI64) && wide.rank == ids.rank + 1;
}

}  // namespace tegula::kernel
