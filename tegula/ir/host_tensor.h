// HostTensor: a contiguous tensor that owns its memory; what tests, oracles and small tools hold.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tegula/base/tensor.h"

namespace tegula {

// A type with symbolic or wrong sizes, or with another number of values, has no bytes, and
// interpret() refuses it.
struct HostTensor {
  Type type;  // every dim constant
  std::vector<std::byte> bytes;

  HostTensor() = default;
  // Zero-filled, in exactly as many bytes as it needs: a sanitizer sees an access outside.
  explicit HostTensor(const Type& t);
  // Row-major values, rounded to the dtype.
  HostTensor(const Type& t, std::span<const double> values);

  int64_t numel() const { return type.shape.numel(); }
  TensorRef ref() const;
  // Row-major element i; integers beyond ±2^53 lose bits.
  double at(int64_t i) const;
  void put(int64_t i, double value);
  std::vector<double> values() const;
  // The same values in another dtype: floats round, integers stay exact and saturate.
  HostTensor as(DType dtype) const;
};

// A contiguous copy of a view.
HostTensor copy_of(const TensorRef& view);
// Element by element into a view of the same shape, in the view's dtype.
void copy_into(const TensorRef& to, const TensorRef& from);

}  // namespace tegula
