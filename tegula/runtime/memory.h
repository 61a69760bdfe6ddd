// Memory that can say how much of it was really used, and what the process says of its own.
//
// A Region is zero-filled or poisoned pages. Poisoned with a byte value, it can tell the highest
// byte that was ever written: that, not the plan, is what was written. From 2 MiB on it begins on
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
  // The same between pages that nobody may touch: an access before the first page or behind the
  // last one ends the process. (The rest of the last page is for touched() to watch.)
  static Result<Region> between_guards(int64_t bytes);

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  // All bytes, and the rest of the last page.
  void poison(uint8_t value, ThreadPool* pool = nullptr);
  // One past the highest byte that no longer holds `value`; 0 if none; more than bytes() where
  // somebody wrote behind the end.
  int64_t touched(uint8_t value) const;

  // Σ bytes of all live Regions, and the largest it has been since reset_peak().
  static int64_t live_bytes();
  static int64_t peak_bytes();
  static void reset_peak();

 private:
  static Result<Region> allocate(int64_t bytes, int64_t guard_bytes);
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  int64_t guard_bytes_ = 0;  // before the first page, and behind the last one
};

// What the operating system and the C library say of this process, whoever asked for the memory.
struct ProcessMemory {
  int64_t touched_bytes = 0;       // pages that are there now: program, stacks, heap, Regions
  int64_t peak_touched_bytes = 0;  // the most there ever were
  // Taken by malloc and its kin (operator new, aligned, any thread) and not given back, and
  // Regions.
  int64_t allocated_bytes = 0;
};
ProcessMemory process_memory();

// Bytes of the machine, or what a container leaves of it.
int64_t machine_memory();
// Nodes of the machine that have memory of their own; 1 where that is unknown.
int memory_nodes();
// Touches every page, values unchanged. A page lies where the thread sits that touches it first;
// here that is the thread to which the pool gives this part of a loop, hence of every loop over
// rows of what lies there.
void first_touch(void* data, int64_t bytes, ThreadPool& pool);

}  // namespace tegula
