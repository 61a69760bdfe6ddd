// Memory that can say how much of it was really used, and what the process says of its own.
//
// A Region is zero-filled or poisoned pages. Poisoned with a byte value, it can tell the highest
// byte that was ever written: that, not the plan, is what was written. From 2 MiB on it begins on
// a huge page and asks for huge pages (fewer misses of the address cache; the kernel may refuse).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tegula/base/counter.h"
#include "tegula/base/result.h"
#include "tegula/base/tensor.h"
#include "tegula/base/thread_pool.h"

namespace tegula {

class Area;    // comm/segment.h
class Device;  // kernels/device.h

// Σ bytes of the live Regions of one owner, and the largest it has been since reset_peak().
class MemoryAccount {
 public:
  MemoryAccount() = default;
  MemoryAccount(const MemoryAccount&) = delete;
  MemoryAccount& operator=(const MemoryAccount&) = delete;

  int64_t live_bytes() const { return live_.load(); }
  int64_t peak_bytes() const { return peak_.load(); }
  void reset_peak() { peak_ = live_.load(); }
  void take(int64_t bytes);
  void give_back(int64_t bytes) { live_.add(-bytes); }
  // From here on the pages of its Regions on the host come from there, where other processes can
  // read them; null: nobody else's.
  void take_from(Area* area) { area_ = area; }
  Area* area() const { return area_; }

 private:
  Counter live_, peak_;
  Area* area_ = nullptr;
};

class Region {
 public:
  Region() = default;
  ~Region();
  Region(Region&& other) noexcept;
  Region& operator=(Region&& other) noexcept;

  // On that account, which outlives it. Error out_of_memory names the size and what the machine
  // has.
  static Result<Region> allocate(MemoryAccount& account, int64_t bytes);
  // The same between pages that nobody may touch: an access before the first page or behind the
  // last one ends the process. (The rest of the last page is for touched() to watch.)
  static Result<Region> between_guards(MemoryAccount& account, int64_t bytes);
  // In the device's memory, zero-filled; null: allocate(). What is on a device is only for copies:
  // poison() and touched() make them.
  static Result<Region> on(Device* device, MemoryAccount& account, int64_t bytes);

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  Device* device() const { return device_; }  // null: the host's
  // Null: default constructed.
  MemoryAccount* account() const { return account_; }
  // All bytes, and the rest of the last page.
  void poison(uint8_t value, ThreadPool* pool = nullptr);
  // One past the highest byte that no longer holds `value`; 0 if none; more than bytes() where
  // somebody wrote behind the end.
  int64_t touched(uint8_t value) const;

 private:
  static Result<Region> allocate(MemoryAccount& account, int64_t bytes, int64_t guard_bytes);
  MemoryAccount* account_ = nullptr;
  Device* device_ = nullptr;
  Area* area_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  int64_t guard_bytes_ = 0;  // before the first page, and behind the last one
};

// The tensor's elements, in place where it lies on the host, else copied into `buffer`:
// gaps between them come along, so that strides stay.
Result<TensorRef> on_host(const TensorRef& tensor, Device* device, std::vector<uint8_t>& buffer);
// The way back, of a copy that on_host() made or of a tensor of the same strides.
Status to_device(const TensorRef& host, const TensorRef& tensor, Device& device);

// The operating system's and C library's view of this process, whoever asked for the memory.
struct ProcessMemory {
  int64_t touched_bytes = 0;       // pages that are there now: program, stacks, heap, Regions
  int64_t peak_touched_bytes = 0;  // the most there ever were
  // Taken by malloc and its kin (operator new, aligned, any thread) and not given back, and
  // Regions.
  int64_t allocated_bytes = 0;
};
// Regions come from mmap, which the C library does not see: `regions_bytes` is what the accounts of
// the process's ranks hold.
ProcessMemory process_memory(int64_t regions_bytes);

// Bytes of the machine, or what a container leaves of it.
int64_t machine_memory();
// Nodes of the machine that have memory of their own; 1 where that is unknown.
int memory_nodes();
// Touches every page, values unchanged. A page lies where the thread sits that touches it first;
// here that is the thread to which the pool gives this part of a loop, hence of every loop over
// rows of what lies there.
void first_touch(void* data, int64_t bytes, ThreadPool& pool);

}  // namespace tegula
