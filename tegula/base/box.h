// Box: a rectangular part of a tensor, the indices [offset, offset + extent) of every dim. What a
// rank holds of a weight, and what a checkpoint saves and loads, whatever cut it.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "tegula/base/result.h"
#include "tegula/base/tensor.h"

namespace tegula {

struct Box {
  std::vector<int64_t> offset, extent;  // one per dim

  static Box whole(std::span<const int64_t> shape) {
    return {std::vector<int64_t>(shape.size(), 0), {shape.begin(), shape.end()}};
  }
  int64_t numel() const;
  friend bool operator==(const Box&, const Box&) = default;
};

// A holder's part of a tensor, as one dense tensor: boxes of the whole, and where each of them lies
// in it. Most hold one box; of a fused projection a rank holds its heads of q, of k and of v.
struct Share {
  std::vector<Box> boxes, places;
  static Share of(Box box);
  static Share whole(std::span<const int64_t> shape) { return of(Box::whole(shape)); }
  std::vector<int64_t> extent() const;  // of what holds them
  friend bool operator==(const Share&, const Share&) = default;
};
// Per dim, ranges [begin, end) of the whole, laid one after another.
using Ranges = std::vector<std::pair<int64_t, int64_t>>;
Share share_of_ranges(std::span<const Ranges> dims);

// Error: another rank than the tensor's, or a dim that leaves it. It begins with `name`.
Status check_box(std::string_view name, std::span<const int64_t> shape, const Box& box);
bool overlap(const Box& a, const Box& b);
// The box of a tensor, as a view.
TensorRef part_of(const TensorRef& whole, const Box& box);
// Bytes from one view into another of the same dtype and shape; strides of any kind.
void copy_elements(const TensorRef& from, const TensorRef& to);

}  // namespace tegula
