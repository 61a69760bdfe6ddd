// TensorRef: a strided view of memory that someone else owns; what kernels and references see.
//
// Element (i0, i1, …) lies at data + size_bytes(dtype)·Σ i_k·stride[k]; strides count elements and
// may be 0 (broadcast) or negative. Rank 0 is a scalar.
#pragma once

#include <cstdint>

#include "tegula/base/shape.h"

namespace tegula {

struct TensorRef {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int rank = 0;
  int64_t shape[kMaxRank] = {};
  int64_t stride[kMaxRank] = {};

  int64_t numel() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= shape[i];
    return n;
  }
  // Row-major without gaps (dims of extent 1 may have any stride).
  bool is_contiguous() const {
    int64_t expect = 1;
    for (int i = rank - 1; i >= 0; --i) {
      if (shape[i] != 1 && stride[i] != expect) return false;
      expect *= shape[i];
    }
    return true;
  }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

// A contiguous view of `data` with every dim of `type` at its bound.
inline TensorRef contiguous_ref(void* data, const Type& type) {
  TensorRef t;
  t.data = data, t.dtype = type.dtype, t.rank = type.shape.rank();
  int64_t stride = 1;
  for (int i = t.rank - 1; i >= 0; --i) {
    t.shape[i] = type.shape[i].bound();
    t.stride[i] = stride;
    stride *= t.shape[i];
  }
  return t;
}

}  // namespace tegula
