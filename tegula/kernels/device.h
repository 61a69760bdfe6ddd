// A device beside the CPU, and the plug-in that brings it.
//
// A plug-in is a shared library (libtegula_cuda.so) that exports tegula_device_plugin(). Its
// kernels are KernelDefs like the CPU's, launched with a DeviceCall, and join the same table when
// it is loaded; that needs no driver, so plans for the device can be made anywhere. open() needs
// one.
#pragma once

#include <string>
#include <vector>

#include "tegula/kernels/kernel.h"

namespace tegula {

struct DeviceInfo {
  std::string name;
  int capability = 0;  // 90: compute capability 9.0
  int multiprocessors = 0;
  int64_t memory_bytes = 0, l2_bytes = 0;
  // By the highest clocks and the widest units: bf16 and f32 operations, bytes of memory.
  double tensor_flops_per_s = 0, f32_flops_per_s = 0, bytes_per_s = 0;
};

// Where a kernel of a device is launched: its stream, and what went wrong first.
struct DeviceQueue {
  void* stream = nullptr;
  Status status;
};

// What KernelDef::launch of a device's kernel is given: data and workspace lie on the device.
struct DeviceCall : KernelCall {
  DeviceQueue* queue = nullptr;
};

// Calls are made by one thread at a time; launches go into stream() in order.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  virtual Result<void*> allocate(int64_t bytes) = 0;  // aligned to 256 bytes
  virtual void release(void* data) = 0;               // null: nothing
  // Either side on the device or the host. Copies and fills are over when they return.
  virtual Status copy(void* to, const void* from, int64_t bytes) = 0;
  virtual Status fill(void* to, uint8_t value, int64_t bytes) = 0;
  virtual void* stream() = 0;
  // What was launched is done; an error of a kernel comes up here.
  virtual Status wait() = 0;
  // Two marks in the stream, 0 and 1, and the time that the device took from one to the other.
  virtual Status mark(int which) = 0;
  virtual Result<double> ms_between_marks() = 0;
};

// One thing that a device needs, for `tegula doctor`.
struct DeviceFact {
  std::string what;  // "driver"
  bool is_well = false;
  std::string text;  // what was found; or what is missing, why, and what to do
};

struct DevicePlugin {
  int64_t abi = 0;  // kDeviceAbi of its build
  std::span<const KernelDef* const> (*kernels)() = nullptr;
  // The one device of the process, opened once; or why there is none.
  Result<Device*> (*open)() = nullptr;
  std::vector<DeviceFact> (*examine)() = nullptr;
};

// Both sides are of one build: this catches a plug-in left over from another.
inline constexpr int64_t kDeviceAbi = int64_t{1} << 40 | int64_t{sizeof(KernelDef)} << 24 |
                                      int64_t{sizeof(DeviceCall)} << 8 |
                                      int64_t{sizeof(DevicePlugin)};

// Loads the plug-in once and adds its kernels to the table. It is $TEGULA_CUDA_PLUGIN, or
// libtegula_cuda.so beside the program or in ../lib. Errors: unsupported, with what to do.
Result<const DevicePlugin*> load_device_plugin();

// load_device_plugin() and its open().
Result<Device*> open_device();

// As for a device: the plug-in, and whatever it says it needs.
std::vector<DeviceFact> examine_device();

}  // namespace tegula
