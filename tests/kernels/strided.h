// Tensors with awkward strides for kernel tests, and a way to run one kernel.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
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
// Whose kernels give a task so few elements that a sample of an op is several tasks.
inline ThreadPool& pool_of_small_tasks(int n_threads) {
  static std::map<int, ThreadPool> pools;
  ThreadPool& p = pools.try_emplace(n_threads, n_threads).first->second;
  p.limit_grain(1);
  return p;
}

// A kernel's workspace of exactly the size that it asks for, filled with NaN, and what lies behind.
class WatchedWorkspace {
 public:
  explicit WatchedWorkspace(int64_t bytes)
      : bytes_(bytes),
        size_(static_cast<size_t>((bytes + 63) / 64 * 64) + kTail),
        data_(size_ ? static_cast<uint8_t*>(std::aligned_alloc(64, size_)) : nullptr, std::free) {
    std::fill_n(data_.get(), size_, kFill);
  }
  void* data() const { return data_.get(); }
  int64_t bytes() const { return bytes_; }
  // One past the last byte that was changed, be it behind the end.
  int64_t written_bytes() const {
    size_t n = size_;
    while (n > 0 && data_.get()[n - 1] == kFill) --n;
    return static_cast<int64_t>(n);
  }

 private:
  static constexpr uint8_t kFill = 0xff;
#ifdef __SANITIZE_ADDRESS__
  static constexpr size_t kTail = 0;  // the sanitizer sees more
#else
  static constexpr size_t kTail = 1 << 16;
#endif
  int64_t bytes_;
  size_t size_;
  std::unique_ptr<uint8_t, void (*)(void*)> data_;
};

struct RunCounters {
  int64_t math_flops, executed_flops;
  int64_t tasks = 0;  // of its longest loop
};

// Runs kernel `def` in that pool, on the instruction set of `table`, where `entry` names its
// function there (null: the kernel's own launch). It must claim all of its workspace, unless there
// is nothing to do, and write no more.
inline RunCounters run_kernel_in(ThreadPool& pool, const KernelDef& def, const Attrs& attrs,
                                 std::span<const TensorRef> in, std::span<const TensorRef> out,
                                 void (*entry)(const KernelCall&) = nullptr,
                                 const Tuning& tuning = {}) {
  const Target target = Target::this_cpu(pool.n_threads());
  const KernelQuery q{.attrs = &attrs, .in = in, .out = out, .target = &target, .tuning = tuning};
  EXPECT_TRUE(def.supports(q)) << def.name;
  const WatchedWorkspace workspace(def.workspace_bytes ? def.workspace_bytes(q) : 0);
  Counters counters;
  KernelCall call;
  call.attrs = &attrs, call.in = in, call.out = out;
  call.workspace = workspace.bytes() > 0 ? workspace.data() : nullptr;
  call.pool = &pool, call.counters = &counters, call.tuning = tuning;
  pool.take_most_indices();
  (entry ? entry : def.launch)(call);
  const int64_t tasks = pool.take_most_indices();
  const int64_t claimed = counters.claimed_bytes, written = workspace.written_bytes();
  EXPECT_LE(written, claimed) << def.name << " wrote behind what it claimed of its workspace";
  if (tasks > 0)
    EXPECT_EQ(claimed, workspace.bytes())
        << def.name << " claims another workspace than it asks for";
  return {counters.math_flops, counters.executed_flops, tasks};
}
inline RunCounters run_kernel(const KernelDef& def, const Attrs& attrs,
                              std::span<const TensorRef> in, std::span<const TensorRef> out,
                              int n_threads, void (*entry)(const KernelCall&) = nullptr,
                              const Tuning& tuning = {}) {
  return run_kernel_in(pool(n_threads), def, attrs, in, out, entry, tuning);
}

}  // namespace tegula::testing
