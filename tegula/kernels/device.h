// A device beside the CPU, and the plug-in that brings it.
//
// The device's kernels are KernelDefs like the CPU's, in the program itself, so that plans for it
// can be made anywhere. A plug-in is a shared library (libtegula_cuda.so) that exports
// tegula_device_plugin(): it brings their launches, found by name, which take a DeviceCall; loading
// it needs no driver, open() does.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tegula/base/memory.h"
#include "tegula/kernels/device_call.h"
#include "tegula/kernels/memory_range.h"

namespace tegula {

// Work of a device made ready: parsed, compiled, loaded, its arguments laid out.
class Prepared {
 public:
  Prepared() = default;
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;
  virtual ~Prepared() = default;
  // Puts it into the stream and no more: nothing is allocated, compiled, parsed or waited for, so
  // that it may be captured.
  virtual Status enqueue(void* stream) const = 0;
  // How many kernels, copies and fills that is.
  virtual int64_t launches() const { return 1; }
  // Work of one kind, other than null, may become one launch.
  virtual const void* kind() const { return nullptr; }
  // Takes in another's work of the same kind, which neither uses what this makes nor makes what it
  // uses; false: there is no room. What was taken in is not enqueued by itself.
  virtual bool take(const Prepared& /*other*/) { return false; }
  // Takes in the work before it, which it uses, to be done first, by whatever part of this needs
  // it: neither may write what that reads. False: it cannot, or that would take longer.
  virtual Result<bool> begin_with(const Prepared& /*before*/) { return false; }
  // Takes in the work after it, which uses what this makes, to be done last, by whatever part of
  // this makes what it needs: it may write nothing that this reads. False: as above.
  virtual Result<bool> end_with(const Prepared& /*after*/) { return false; }
  // Called last, before any enqueue: makes what it has taken in ready, too. What it uses of this
  // memory may be read before the work before it has ended: nothing writes it.
  virtual Status settle(std::span<const MemoryRange> /*constant*/) { return {}; }
  // For work in one (Device::put_in_one): the share of its last run's time that each piece had, in
  // their order. Empty: nothing is known.
  virtual Result<std::vector<double>> shares() const { return std::vector<double>(); }
};

// Work in the order of a step, and the memory it touches.
struct WorkInOrder {
  const Prepared* prepared = nullptr;  // null: nothing that can be part of something else
  const Touched* touched = nullptr;
};
// Does `n` pieces of work from `first` on.
struct WorkInOne {
  size_t first = 0, n = 0;
  std::unique_ptr<Prepared> prepared;
};

// A device's kernel of that name, made ready for a call whose memory it will use.
struct KernelLaunch {
  std::string_view name;
  Result<std::unique_ptr<Prepared>> (*prepare)(const DeviceCall&) = nullptr;
  // Compiles what prepare() will load, if no cache has it: true then. Many threads may call it at
  // once. Null: nothing need be compiled first.
  Result<bool> (*compile)(const DeviceCall&) = nullptr;
};

// A kernel, copy or fill as a device ran it, in milliseconds since the first of those asked for.
struct DeviceSpan {
  enum Kind : uint8_t { kKernel, kCopy, kFill };
  Kind kind = kKernel;
  std::string name;  // of a kernel
  double begin_ms = 0, end_ms = 0;
  int64_t bytes = 0;  // of a copy or fill
};

// Calls are made by one thread at a time; what is enqueued goes into stream(), in order.
class Device {
 public:
  virtual ~Device() = default;
  virtual const Target& target() const = 0;
  virtual Result<void*> allocate(int64_t bytes) = 0;  // aligned to 256 bytes
  virtual void release(void* data) = 0;               // null: nothing
  // Memory of the host that the device reads and writes by itself: copies of it go on beside.
  virtual Result<void*> allocate_pinned(int64_t bytes) = 0;
  virtual void release_pinned(void* data) = 0;
  // Either side on the device or the host. Copies and fills are over when they return.
  virtual Status copy(void* to, const void* from, int64_t bytes) = 0;
  virtual Status fill(void* to, uint8_t value, int64_t bytes) = 0;
  // The same in the stream's order; a side on the host is pinned and stays until wait().
  virtual Status copy_later(void* to, const void* from, int64_t bytes) = 0;
  virtual void* stream() = 0;
  // Waits until all that was enqueued is done; an error of a kernel comes up here.
  virtual Status wait() = 0;
  // Work that is enqueued from here on is written down, not done, and end_capture() gives it as one
  // piece (a CUDA graph). In between only enqueue() and copy_later() may be called.
  virtual Status begin_capture() = 0;
  virtual Result<std::unique_ptr<Prepared>> end_capture() = 0;
  // Work in a row that takes less time as one launch than as many. Nothing writes what is constant,
  // which may be read before the work before it has ended. Nothing: none does.
  virtual Result<std::vector<WorkInOne>> put_in_one(std::span<const WorkInOrder> /*work*/,
                                                    std::span<const MemoryRange> /*constant*/) {
    return std::vector<WorkInOne>();
  }
  // Two marks in the stream, 0 and 1, and the time that the device took from one to the other.
  virtual Status mark(int which) = 0;
  virtual Result<double> ms_between_marks() = 0;
  // Records what it does from here on, until end_trace() gives it by its own clock, in the order of
  // beginning: each kernel of a captured piece is one. Both wait for what was enqueued. Error:
  // unsupported, why it cannot be known.
  virtual Status begin_trace() = 0;
  virtual Result<std::vector<DeviceSpan>> end_trace() = 0;
  // Bytes that nobody has, of this process or another.
  virtual Result<int64_t> free_bytes() = 0;
};

// One thing that a device needs, for `tegula doctor`.
struct DeviceFact {
  std::string what;  // "driver"
  bool is_well = false;
  std::string text;  // what was found; or what is missing, why, and what to do
};

struct DevicePlugin {
  int64_t abi = 0;  // kDeviceAbi of its build
  std::span<const KernelLaunch* const> (*launches)() = nullptr;
  // The one device of the process, opened once; or why there is none.
  Result<Device*> (*open)() = nullptr;
  std::vector<DeviceFact> (*examine)() = nullptr;
};

// Both sides are of one build: this catches a plug-in left over from another, by sizes and by a
// number that counts what they do not show: virtual functions that came or went.
inline constexpr int64_t kDeviceAbi = int64_t{4} << 40 | int64_t{sizeof(KernelDef)} << 24 |
                                      int64_t{sizeof(DeviceCall)} << 8 |
                                      int64_t{sizeof(DevicePlugin)};

// Loads the plug-in once. It is $TEGULA_CUDA_PLUGIN, or
// libtegula_cuda.so beside the program or in ../lib. Errors: unsupported, with what to do.
Result<const DevicePlugin*> load_device_plugin();

// The plug-in's launch of a kernel. Null: there is no plug-in, or it is not in it.
const KernelLaunch* launch_of(const KernelDef& kernel);

// load_device_plugin() and its open().
Result<Device*> open_device();

// As for a device: the plug-in, and whatever it says it needs.
std::vector<DeviceFact> examine_device();

}  // namespace tegula
