// A `gather` or `scatter` call as loops: y[o, i, q] and x[o, ids[o, i], q].
#pragma once

#include "tegula/kernels/cpu/common/dot_plan.h"

namespace tegula::kernel {

struct GatherCall {
  Loops outer;  // dims before the indexed one; strides of x (kA), y (kB) and ids (kOut)
  Loops index;  // dims of ids alone; strides of y (kB) and ids (kOut)
  Loops inner;  // dims after it; strides of x (kA) and y (kB)
  const TensorRef* ids;
  int64_t n = 0, n_stride = 0;  // the indexed dim of x

  GatherCall(const Attrs& attrs, const TensorRef& x, const TensorRef& ids_, const TensorRef& y)
      : ids(&ids_) {
    const auto dim = static_cast<int>(attrs.get_or<int64_t>("dim", 0));
    const auto batch = static_cast<int>(attrs.get_or<int64_t>("batch", 0));
    n = x.shape[dim], n_stride = x.stride[dim];
    for (int d = 0; d < dim; ++d) {
      Factor f{.extent = x.shape[d]};
      f.stride[kA] = x.stride[d], f.stride[kB] = y.stride[d];
      f.stride[kOut] = d < batch ? ids_.stride[d] : 0;
      outer.add(f);
    }
    for (int d = batch; d < ids_.rank; ++d) {
      Factor f{.extent = ids_.shape[d]};
      f.stride[kB] = y.stride[dim + d - batch], f.stride[kOut] = ids_.stride[d];
      index.add(f);
    }
    for (int d = dim + 1; d < x.rank; ++d) {
      Factor f{.extent = x.shape[d]};
      f.stride[kA] = x.stride[d], f.stride[kB] = y.stride[d - 1 + ids_.rank - batch];
      inner.add(f);
    }
  }
  // -1 outside [0, n).
  int64_t id(int64_t outer_at, int64_t i) const {
    const int64_t at = outer_at + index.offset(i, kOut);
    const int64_t v = ids->dtype == DType::kI32 ? ids->as<int32_t>()[at] : ids->as<int64_t>()[at];
    return v >= 0 && v < n ? v : -1;
  }
};

inline bool gather_supported(const KernelQuery& q) {
  const DType t = q.in[1].dtype;
  return (t == DType::kI32 || t == DType::kI64) && q.in[0].rank <= Loops::kMax &&
         q.out[0].rank <= Loops::kMax;
}

}  // namespace tegula::kernel
