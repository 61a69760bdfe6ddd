// Memory that can say how much of it was really used.
//
// A Region is zero-filled or poisoned pages. Poisoned with a byte value, it can tell the highest
// byte that was ever written: that, not the plan, is the measured peak. From 2 MiB on it begins on
// a huge page and asks for huge pages (fewer misses of the address cache; the kernel may refuse).
#pragma once

#include <cstddef>
#include <cstdint>

#include "tegula/base/result.h"
#include "tegula/base/thread_pool.h"

namespace tegula {

class Region {
 public:
  Region() = default;
  ~Region();
  Region(Region&& other) noexcept;
  Region& operator=(Region&& other) noexcept;

  // Error out_of_memory names the size and what the machine has.
  static Result<Region> allocate(int64_t bytes);

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  void poison(uint8_t value, ThreadPool* pool = nullptr);
  // One past the highest byte that no longer holds `value`; 0 if none.
  int64_t touched(uint8_t value) const;

  // Σ bytes of all live Regions, and the largest it has been since reset_peak().
  static int64_t live_bytes();
  static int64_t peak_bytes();
  static void reset_peak();

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

// Nodes of the machine that have memory of their own; 1 where that is unknown.
int memory_nodes();
// Touches every page, values unchanged. A page lies where the thread sits that touches it first;
// here that is the thread to which the pool gives this part of a loop, hence of every loop over
// rows of what lies there.
void first_touch(void* data, int64_t bytes, ThreadPool& pool);

}  // namespace tegula
