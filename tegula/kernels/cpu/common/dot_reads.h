// Counts what a rung of the matmul ladder reads, by running its own source over a vector type that
// reports every access to a model of one cache.
#pragma once

#include <cstdint>
#include <list>
#include <string_view>
#include <unordered_map>

#include "tegula/kernels/kernel.h"

namespace tegula::kernel {

// Elements read: as the instructions ask for them, and what a cache did not hold.
struct Reads {
  int64_t a = 0, b = 0;  // of the operands themselves
  int64_t other = 0;     // panels, partial sums
  int64_t far_a = 0, far_b = 0, far_other = 0;
};

// One fully associative cache of `capacity` elements with lines of one element, least recently used
// goes first; writes bring their line in without a read.
class ReadCounter {
 public:
  struct Range {
    const float* data;
    int64_t n;
    bool holds(const float* p) const { return p >= data && p < data + n; }
  };
  ReadCounter(int64_t capacity, Range a, Range b) : capacity_(capacity), a_(a), b_(b) {}

  void read(const float* p, int n);
  void write(const float* p, int n);
  const Reads& reads() const { return reads_; }

  // That of the thread's running count.
  static ReadCounter*& current();

 private:
  bool touch(const float* p);  // whether it was there
  int64_t capacity_;
  Range a_, b_;
  Reads reads_;
  std::list<const float*> recent_;  // first: most recently used
  std::unordered_map<const float*, std::list<const float*>::iterator> where_;
};

// One run of out[m, n] = a[m, k]·b[k, n], f32, on one thread, in one chain. `kernel`: dot_naive,
// dot_cache_tiled, dot_register_tiled or dot_packed (register tiles of 6 × 16), the last with sizes
// of `tuning`. `is_equal`: the result has the bits of dot_naive.
Reads count_reads(std::string_view kernel, int64_t m, int64_t n, int64_t k, int64_t cache_elements,
                  const Tuning& tuning, bool* is_equal);

}  // namespace tegula::kernel
