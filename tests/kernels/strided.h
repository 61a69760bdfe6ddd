// Tensors with awkward strides for kernel tests, and a way to run one kernel.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "tegula/base/element.h"
#include "tegula/base/half.h"
#include "tegula/kernels/cpu/isa/table.h"
#include "tegula/kernels/registry.h"

namespace tegula::testing {

using Rng = std::mt19937;
inline int64_t pick(Rng& rng, int64_t lo, int64_t hi) {
  return std::uniform_int_distribution<int64_t>(lo, hi)(rng);
}

// A tensor in exactly as much heap memory as it spans, so that a sanitizer sees an access outside.
class Tensor {
 public:
  // Row-major.
  Tensor(DType dtype, std::vector<int64_t> shape) {
    ref_.dtype = dtype, ref_.rank = static_cast<int>(shape.size());
    std::copy(shape.begin(), shape.end(), ref_.shape);
    int64_t stride = 1;
    for (int d = ref_.rank - 1; d >= 0; --d) ref_.stride[d] = stride, stride *= ref_.shape[d];
    allocate();
  }
  // Random dim order, gaps, reversed dims, and (for inputs) broadcast dims.
  Tensor(DType dtype, std::vector<int64_t> shape, Rng& rng, bool is_input) : Tensor(dtype, shape) {
    std::vector<int> order(shape.size());
    std::iota(order.begin(), order.end(), 0);
    if (pick(rng, 0, 1)) std::shuffle(order.begin(), order.end(), rng);
    const bool awkward = pick(rng, 0, 2) == 0;
    int64_t stride = 1;
    for (auto d = order.rbegin(); d != order.rend(); ++d) {
      if (awkward && pick(rng, 0, 3) == 0) stride += pick(rng, 0, 2);
      ref_.stride[*d] = stride;
      if (awkward && is_input && pick(rng, 0, 4) == 0) {
        ref_.stride[*d] = 0;
      } else {
        stride *= std::max<int64_t>(1, shape[static_cast<size_t>(*d)]);
      }
      if (awkward && pick(rng, 0, 4) == 0) ref_.stride[*d] = -ref_.stride[*d];
    }
    allocate();
  }

  // Row-major, the last dim's rows at multiples of `unit` elements.
  static Tensor padded(DType dtype, std::vector<int64_t> shape, int64_t unit) {
    Tensor t(dtype, shape);
    int64_t stride = 1;
    for (int d = t.ref_.rank - 1; d >= 0; --d) {
      t.ref_.stride[d] = stride;
      stride *= std::max<int64_t>(1, t.ref_.shape[d]);
      if (d == t.ref_.rank - 1) stride = (stride + unit - 1) / unit * unit;
    }
    t.allocate();
    return t;
  }

  const TensorRef& ref() const { return ref_; }
  std::span<std::byte> memory() { return memory_; }
  std::span<const std::byte> memory() const { return memory_; }
  int64_t numel() const { return ref_.numel(); }
  // The element offset of row-major index i.
  int64_t offset(int64_t i) const {
    int64_t off = 0;
    for (int d = ref_.rank - 1; d >= 0; --d)
      off += i % ref_.shape[d] * ref_.stride[d], i /= ref_.shape[d];
    return off;
  }
  double at(int64_t i) const { return load_element(ref_, offset(i)); }
  void put(int64_t i, double v) { store_element(ref_, offset(i), v); }
  void fill_random(Rng& rng) {
    std::normal_distribution<double> normal;
    for (int64_t i = 0; i < numel(); ++i)
      put(i, is_float(ref_.dtype) ? normal(rng) : static_cast<double>(pick(rng, -5, 5)));
  }
  void fill(double v) {
    for (int64_t i = 0; i < numel(); ++i) put(i, v);
  }

 private:
  void allocate() {
    int64_t lo = 0, hi = 0;
    for (int d = 0; d < ref_.rank; ++d) {
      if (ref_.shape[d] == 0) continue;
      const int64_t last = (ref_.shape[d] - 1) * ref_.stride[d];
      (last < 0 ? lo : hi) += last;
    }
    const auto size = static_cast<size_t>(size_bytes(ref_.dtype));
    const size_t bytes = numel() == 0 ? 0 : static_cast<size_t>(hi - lo + 1) * size;
    memory_.resize(bytes);
    memory_.shrink_to_fit();
    ref_.data = memory_.data() + static_cast<size_t>(-lo) * size;
  }
  TensorRef ref_;
  std::vector<std::byte> memory_;
};

inline ThreadPool& pool(int n_threads) {
  static std::map<int, ThreadPool> pools;
  return pools.try_emplace(n_threads, n_threads).first->second;
}

struct RunCounters {
  int64_t math_flops, executed_flops;
};

// Runs kernel `def` on the instruction set of `table`, where `entry` names its function there
// (null: the kernel's own launch), in a workspace of exactly the size it asks for, filled with NaN.
inline RunCounters run_kernel(const KernelDef& def, const Attrs& attrs,
                              std::span<const TensorRef> in, std::span<const TensorRef> out,
                              int n_threads, void (*entry)(const KernelCall&) = nullptr,
                              const Tuning& tuning = {}) {
  const KernelQuery q{
      .attrs = &attrs, .in = in, .out = out, .n_threads = n_threads, .tuning = tuning};
  EXPECT_TRUE(def.supports(q)) << def.name;
  const int64_t bytes = def.workspace_bytes ? def.workspace_bytes(q) : 0;
  const size_t size = static_cast<size_t>((bytes + 63) / 64 * 64);
  auto* workspace = static_cast<std::byte*>(size ? std::aligned_alloc(64, size) : nullptr);
  std::fill(workspace, workspace + size, std::byte{0xff});
  Counters counters;
  KernelCall call;
  call.attrs = &attrs, call.in = in, call.out = out, call.workspace = workspace;
  call.pool = &pool(n_threads), call.counters = &counters, call.tuning = tuning;
  (entry ? entry : def.launch)(call);
  std::free(workspace);
  return {counters.math_flops, counters.executed_flops};
}

}  // namespace tegula::testing
