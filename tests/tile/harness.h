// Runs tile programs by the kernel and by the reference on the same operands, and compares bits.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "tegula/base/half.h"
#include "tegula/kernels/kernel.h"
#include "tegula/tile/builder.h"
#include "tests/common/tile_reference.h"

namespace tegula::tile {

using Rng = std::mt19937_64;
inline int64_t pick(Rng& rng, int64_t low, int64_t high) {  // both included
  return std::uniform_int_distribution<int64_t>(low, high)(rng);
}

// kGaps: between rows; kSpread: between all elements.
enum class Layout { kContiguous, kTransposed, kGaps, kReversed, kBroadcast, kSpread };

// A tensor with its own memory, with guards around it.
class Tensor {
 public:
  Tensor(DType dtype, std::vector<int64_t> shape, Layout layout = Layout::kContiguous);
  Tensor(const Tensor& other) : ref_(other.ref_), bytes_(other.bytes_) { follow(other); }
  Tensor& operator=(const Tensor& other) {
    ref_ = other.ref_, bytes_ = other.bytes_;
    follow(other);
    return *this;
  }
  const TensorRef& ref() const { return ref_; }
  int64_t numel() const { return ref_.numel(); }
  const std::vector<char>& bytes() const { return bytes_; }
  std::vector<char>& bytes() { return bytes_; }
  // Has every element its own place?
  bool is_one_to_one() const;
  // The element at a row-major position.
  void set(int64_t at, double v);
  double get(int64_t at) const;
  void fill(Rng& rng, double low, double high, bool special = false);

 private:
  void follow(const Tensor& other) {
    ref_.data = bytes_.data() + (static_cast<char*>(other.ref_.data) - other.bytes_.data());
  }
  int64_t offset(int64_t at) const;
  TensorRef ref_;
  std::vector<char> bytes_;
};

struct Counts {
  int64_t math = 0, executed = 0;
  int64_t tasks = 0;  // of its longest loop
};

// By the kernel "fused", with a poisoned workspace of just the size that it asks for; several
// threads get tasks of a tile.
Counts run_kernel(const Program& p, const std::vector<TensorRef>& in,
                  const std::vector<TensorRef>& out, int n_threads = 1);

// Equal elements, whatever the layouts; any NaN equals any NaN.
::testing::AssertionResult same_values(const Tensor& got, const Tensor& want);
// Equal bytes, except that any NaN equals any NaN. On failure names the first difference.
::testing::AssertionResult same_bits(const Tensor& got, const Tensor& want);

}  // namespace tegula::tile
