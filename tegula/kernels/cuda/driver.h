// The few calls of the CUDA driver that kernels need, found in libcuda.so.1 at run time: building
// needs no toolkit, and a machine without a driver gets an error instead of a program that won't
// start.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "tegula/base/result.h"
#include "tegula/kernels/cuda/capability.h"

namespace tegula::cuda {

// The driver's own types, as its ABI has them.
using DriverStatus = int;           // CUresult; 0 is success
using ModuleHandle = void*;         // CUmodule
using FunctionHandle = void*;       // CUfunction
using StreamHandle = void*;         // CUstream
using GraphHandle = void*;          // CUgraph
using GraphExecHandle = void*;      // CUgraphExec
struct alignas(64) HostTensorMap {  // CUtensorMap
  uint64_t words[16];
};

// CUlaunchAttribute and CUlaunchConfig.
struct LaunchAttribute {
  int id;
  alignas(8) int value[16];
};
struct LaunchConfig {
  unsigned grid[3], block[3], smem_bytes;
  StreamHandle stream;
  const LaunchAttribute* attributes;
  unsigned n_attributes;
};

// The grid of a launch. An early kernel begins with wait_for_grid_before() (ptx/sync.cuh), so its
// blocks may be set up while the kernel before it still runs.
struct Grid {
  int64_t blocks[3] = {1, 1, 1};
  int threads[3] = {1, 1, 1};
  int64_t smem_bytes = 0;
  bool is_early = false;
  bool is_cooperative = false;  // all blocks run at once, or the launch is refused
};
struct LaunchArgument {
  const void* data;
  size_t bytes;
};

class LaunchList;  // launch_list.h

// Where launches go: into a stream, or onto a list that is enqueued later.
struct Stream {
  StreamHandle handle = nullptr;
  LaunchList* list = nullptr;
  Stream(StreamHandle into = nullptr) : handle(into) {}  // NOLINT: a stream is one
  Stream(LaunchList& onto) : list(&onto) {}              // NOLINT
};

inline constexpr int kOldestDriver = 12000;  // tensor maps

struct Driver {
  DriverStatus (*init)(unsigned);
  DriverStatus (*version)(int*);  // 12040 is 12.4
  DriverStatus (*error_string)(DriverStatus, const char**);
  DriverStatus (*device_count)(int*);
  DriverStatus (*device)(int*, int);
  DriverStatus (*device_name)(char*, int, int);
  DriverStatus (*device_memory)(size_t*, int);
  DriverStatus (*device_attribute)(int*, int, int);
  DriverStatus (*primary_context)(void**, int);
  DriverStatus (*set_context)(void*);
  DriverStatus (*current_device)(int*);
  DriverStatus (*allocate)(void**, size_t);
  DriverStatus (*release)(void*);
  DriverStatus (*copy)(void*, const void*, size_t);
  DriverStatus (*fill)(void*, unsigned char, size_t);
  // In the stream's order.
  DriverStatus (*fill_later)(void*, unsigned char, size_t, StreamHandle);
  DriverStatus (*copy_later)(void*, const void*, size_t, StreamHandle);
  DriverStatus (*allocate_pinned)(void**, size_t, unsigned);
  DriverStatus (*release_pinned)(void*);
  DriverStatus (*memory_info)(size_t* free, size_t* total);
  DriverStatus (*begin_capture)(StreamHandle, int mode);
  DriverStatus (*end_capture)(StreamHandle, GraphHandle*);
  DriverStatus (*graph_instantiate)(GraphExecHandle*, GraphHandle, unsigned long long);
  DriverStatus (*graph_launch)(GraphExecHandle, StreamHandle);
  DriverStatus (*graph_exec_destroy)(GraphExecHandle);
  DriverStatus (*graph_destroy)(GraphHandle);
  DriverStatus (*stream_create)(StreamHandle*, unsigned);
  DriverStatus (*stream_wait)(StreamHandle);
  DriverStatus (*event_create)(void**, unsigned);
  DriverStatus (*event_record)(void*, StreamHandle);
  DriverStatus (*event_wait)(void*);
  DriverStatus (*event_ms)(float*, void*, void*);
  DriverStatus (*module_load)(ModuleHandle*, const void*);
  DriverStatus (*module_unload)(ModuleHandle);
  DriverStatus (*module_function)(FunctionHandle*, ModuleHandle, const char*);
  DriverStatus (*module_global)(void**, size_t*, ModuleHandle, const char*);
  DriverStatus (*function_set)(FunctionHandle, int, int);
  DriverStatus (*function_get)(int*, int, FunctionHandle);
  DriverStatus (*occupancy)(int*, FunctionHandle, int threads, size_t smem_bytes);
  DriverStatus (*launch)(FunctionHandle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                         unsigned, StreamHandle, void**, void**);
  DriverStatus (*launch_ex)(const LaunchConfig*, FunctionHandle, void**, void**);
  DriverStatus (*tensor_map)(HostTensorMap*, int, uint32_t, void*, const uint64_t*, const uint64_t*,
                             const uint32_t*, const uint32_t*, int, int, int, int);

  // Loads the library once: libcuda.so.1, or $TEGULA_CUDA_DRIVER. Device error if there is none, if
  // it is older than kOldestDriver, or if it finds no device.
  static Result<const Driver*> get();
  // Launches the kernel into the stream or onto its list, with copies of the arguments.
  template <class... Args>
  Status start(FunctionHandle f, const Grid& grid, const Stream& stream, const char* what,
               const Args&... arguments) const {
    const LaunchArgument all[] = {{&arguments, sizeof arguments}...};
    return start_with(f, grid, stream, what, all);
  }
  Status start_with(FunctionHandle f, const Grid& grid, const Stream& stream, const char* what,
                    std::span<const LaunchArgument> arguments) const;
  // cuMemsetD8Async, or put onto the list.
  Status start_fill(void* to, uint8_t value, int64_t bytes, const Stream& stream) const;
  // The answer of a call: ok, or a device error that names `what`.
  Status check(DriverStatus status, const char* what) const;
};

// A cubin in the current context of the calling thread.
class Module {
 public:
  static Result<Module> load(const std::string& cubin);
  Module(Module&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Module& operator=(Module&&) = delete;
  ~Module();
  // An extern "C" kernel of it, allowed `smem_bytes` of dynamic shared memory.
  Result<FunctionHandle> function(const char* name, int smem_bytes) const;

 private:
  explicit Module(ModuleHandle handle) : handle_(handle) {}
  ModuleHandle handle_;
};

// A number that the driver has of a device, by its enumeration.
enum class DeviceAttribute : int {
  kClockKhz = 13,
  kMultiprocessors = 16,
  kMemoryClockKhz = 36,
  kMemoryBusBits = 37,
  kL2Bytes = 38,
  kCapabilityMajor = 75,
  kCapabilityMinor = 76,
};
Result<int> device_attribute(DeviceAttribute which, int device);

// The capability of the current device: 90 is 9.0.
Result<int> current_capability();

// Multiprocessors of the current device; an error unless it is of compute capability 9.
Result<int> hopper_multiprocessors();

// A tensor of 4 dims (fastest first; `strides` of the other three, in elements), read or written in
// boxes of 128 bytes × `rows` with the 128-byte swizzle. Elements of 2 bytes are bf16 to the copy
// engine, of 1 byte whole numbers; it looks only at their size. Strides must be multiples of 16
// bytes, `data` aligned to 16 bytes: otherwise invalid_argument.
Result<HostTensorMap> tensor_map(void* data, int element_bytes, const int64_t (&dims)[4],
                                 const int64_t (&strides)[3], int rows);
inline Result<HostTensorMap> tensor_map_bf16(void* data, const int64_t (&dims)[4],
                                             const int64_t (&strides)[3], int rows) {
  return tensor_map(data, 2, dims, strides, rows);
}

}  // namespace tegula::cuda
