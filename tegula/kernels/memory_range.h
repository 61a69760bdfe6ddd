// Memory that work touches, by its addresses: what must wait for what, and what nothing writes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tegula/base/algorithm.h"
#include "tegula/base/tensor.h"

namespace tegula {

struct MemoryRange {
  uintptr_t begin = 0, end = 0;
};

// From the first byte of a tensor past its last; strides are not negative.
inline MemoryRange bytes_of(const TensorRef& t) {
  const auto begin = reinterpret_cast<uintptr_t>(t.data);
  int64_t last = 0;
  for (int d = 0; d < t.rank; ++d) {
    if (t.shape[d] == 0) return {begin, begin};
    last += (t.shape[d] - 1) * t.stride[d];
  }
  return {begin, begin + static_cast<uintptr_t>((last + 1) * size_bytes(t.dtype))};
}

inline bool meet(const MemoryRange& a, const MemoryRange& b) {
  return a.begin < b.end && b.begin < a.end;
}
inline bool meet(std::span<const MemoryRange> a, std::span<const MemoryRange> b) {
  return std::any_of(a.begin(), a.end(), [&](const MemoryRange& x) {
    return std::any_of(b.begin(), b.end(), [&](const MemoryRange& y) { return meet(x, y); });
  });
}
inline bool lies_in(const void* data, std::span<const MemoryRange> ranges) {
  const auto at = reinterpret_cast<uintptr_t>(data);
  return std::any_of(ranges.begin(), ranges.end(),
                     [at](const MemoryRange& r) { return r.begin <= at && at < r.end; });
}

struct Touched {
  std::vector<MemoryRange> read, written;
  void add(const Touched& other) {
    read.insert(read.end(), other.read.begin(), other.read.end());
    written.insert(written.end(), other.written.begin(), other.written.end());
  }
  // Whether one must have ended before the other begins.
  bool is_ordered_with(const Touched& o) const {
    return meet(written, o.written) || meet(written, o.read) || meet(read, o.written);
  }
};

}  // namespace tegula
