#include "tegula/kernels/cuda/driver.h"

#include <dlfcn.h>

#include <cstdlib>

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cuda/count.h"
#include "tegula/kernels/cuda/launch_list.h"

namespace tegula::cuda {

namespace {

// Values of the driver's enumerations.
constexpr DriverStatus kNoDevice = 100, kNoBinaryForGpu = 209;
// After these no call of the process works any more: the device is unavailable, uncorrectable
// memory, a fault of NVLink, of an address, an instruction or a launch, and the bus (unknown).
constexpr DriverStatus kLost[] = {46, 214, 220, 700, 714, 715, 716, 717, 718, 719, 999};
constexpr int kMaxDynamicSharedBytes = 8, kCooperative = 2, kProgrammaticSerialization = 6;
constexpr int kU8 = 0, kBf16 = 9, kNoInterleave = 0, kSwizzle128 = 3, kPromote256 = 3,
              kFillZero = 0;

template <class F>
bool find(void* library, const char* name, F& call) {
  call = reinterpret_cast<F>(dlsym(library, name));
  return call != nullptr;
}

constexpr const char* kHowToUpdate = "install NVIDIA's driver 525 or newer, or run on the CPU";

bool find_calls(void* library, Driver& d) {
  return find(library, "cuDeviceGetCount", d.device_count) &&
         find(library, "cuDeviceGet", d.device) &&
         find(library, "cuDeviceGetName", d.device_name) &&
         find(library, "cuDeviceTotalMem_v2", d.device_memory) &&
         find(library, "cuDeviceGetAttribute", d.device_attribute) &&
         find(library, "cuDevicePrimaryCtxRetain", d.primary_context) &&
         find(library, "cuCtxSetCurrent", d.set_context) &&
         find(library, "cuCtxGetDevice", d.current_device) &&
         find(library, "cuMemAlloc_v2", d.allocate) && find(library, "cuMemFree_v2", d.release) &&
         find(library, "cuMemcpy", d.copy) && find(library, "cuMemsetD8_v2", d.fill) &&
         find(library, "cuMemsetD8Async", d.fill_later) &&
         find(library, "cuMemcpyAsync", d.copy_later) &&
         find(library, "cuMemHostAlloc", d.allocate_pinned) &&
         find(library, "cuMemFreeHost", d.release_pinned) &&
         find(library, "cuMemGetInfo_v2", d.memory_info) &&
         find(library, "cuStreamBeginCapture_v2", d.begin_capture) &&
         find(library, "cuStreamEndCapture", d.end_capture) &&
         find(library, "cuGraphInstantiateWithFlags", d.graph_instantiate) &&
         find(library, "cuGraphLaunch", d.graph_launch) &&
         find(library, "cuGraphExecDestroy", d.graph_exec_destroy) &&
         find(library, "cuGraphDestroy", d.graph_destroy) &&
         find(library, "cuStreamCreate", d.stream_create) &&
         find(library, "cuStreamSynchronize", d.stream_wait) &&
         find(library, "cuEventCreate", d.event_create) &&
         find(library, "cuEventRecord", d.event_record) &&
         find(library, "cuEventSynchronize", d.event_wait) &&
         find(library, "cuEventElapsedTime", d.event_ms) &&
         find(library, "cuModuleLoadData", d.module_load) &&
         find(library, "cuModuleUnload", d.module_unload) &&
         find(library, "cuModuleGetFunction", d.module_function) &&
         find(library, "cuModuleGetGlobal_v2", d.module_global) &&
         find(library, "cuFuncSetAttribute", d.function_set) &&
         find(library, "cuFuncGetAttribute", d.function_get) &&
         find(library, "cuOccupancyMaxActiveBlocksPerMultiprocessor", d.occupancy) &&
         find(library, "cuLaunchKernel", d.launch) &&
         find(library, "cuLaunchKernelEx", d.launch_ex) &&
         find(library, "cuTensorMapEncodeTiled", d.tensor_map);
}

Error device_error(std::string message) { return Error{Code::kDevice, std::move(message)}; }

Result<Driver> open_driver() {
  const char* own = std::getenv("TEGULA_CUDA_DRIVER");
  void* library = dlopen(own != nullptr ? own : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return device_error(cat("no CUDA driver: ", dlerror(), "; ", kHowToUpdate));
  Driver d;
  if (!find(library, "cuDriverGetVersion", d.version) || !find(library, "cuInit", d.init) ||
      !find(library, "cuGetErrorString", d.error_string))
    return device_error(cat("this is no CUDA driver: ", dlerror(), "; ", kHowToUpdate));
  int version = 0, devices = 0;
  TEGULA_TRY(d.check(d.version(&version), "cuDriverGetVersion"));
  if (version < kOldestDriver)
    return device_error(cat("the CUDA driver is too old: it serves CUDA ", version / 1000, ".",
                            version % 1000 / 10, ", tensor maps need 12.0; ", kHowToUpdate));
  if (!find_calls(library, d))
    return device_error(cat("the CUDA driver lacks a call: ", dlerror(), "; ", kHowToUpdate));
  const DriverStatus status = d.init(0);
  if (status != kNoDevice) TEGULA_TRY(d.check(status, "cuInit"));
  if (status == 0) TEGULA_TRY(d.check(d.device_count(&devices), "cuDeviceGetCount"));
  if (devices == 0)
    return device_error("the CUDA driver finds no device: see nvidia-smi and CUDA_VISIBLE_DEVICES");
  return d;
}

}  // namespace

Result<const Driver*> Driver::get() {
  static const Result<Driver> driver = open_driver();
  if (!driver.ok()) return driver.error();
  return &driver.value();
}

Status Driver::start_with(FunctionHandle f, const Grid& grid, const Stream& stream,
                          const char* what, std::span<const LaunchArgument> arguments) const {
  if (stream.list != nullptr) {
    stream.list->add(f, grid, what, arguments);
    return {};
  }
  void* pointers[16];
  TEGULA_CHECK(arguments.size() <= std::size(pointers), what, ": too many arguments");
  for (size_t i = 0; i < arguments.size(); ++i) pointers[i] = const_cast<void*>(arguments[i].data);
  const bool is_early = grid.is_early && TEGULA_TRY(current_capability()) >= 90;
  const LaunchAttribute attribute{grid.is_cooperative ? kCooperative : kProgrammaticSerialization,
                                  {1}};
  const auto u = [](auto n) { return static_cast<unsigned>(n); };
  const LaunchConfig config{{u(grid.blocks[0]), u(grid.blocks[1]), u(grid.blocks[2])},
                            {u(grid.threads[0]), u(grid.threads[1]), u(grid.threads[2])},
                            u(grid.smem_bytes),
                            stream.handle,
                            &attribute,
                            is_early || grid.is_cooperative ? 1U : 0U};
  return check(launch_ex(&config, f, pointers, nullptr), what);
}

Status Driver::start_fill(void* to, uint8_t value, int64_t bytes, const Stream& stream) const {
  if (stream.list != nullptr) {
    stream.list->add_fill(to, value, bytes);
    return {};
  }
  return check(fill_later(to, value, static_cast<size_t>(bytes), stream.handle), "cuMemsetD8Async");
}

Status Driver::check(DriverStatus status, const char* what) const {
  if (status == 0) return {};
  const char* text = nullptr;
  error_string(status, &text);
  const bool is_lost = std::find(std::begin(kLost), std::end(kLost), status) != std::end(kLost);
  return Error{Code::kDevice,
               cat(what, " failed: ", text != nullptr ? text : "unknown error", " (", status, ")",
                   is_lost ? "; the GPU is lost to this process: start it anew, and if that fails "
                             "see nvidia-smi and dmesg, or run on the CPU"
                           : "")};
}

Result<Module> Module::load(const std::string& cubin) {
  const Driver* d = TEGULA_TRY(Driver::get());
  ModuleHandle handle = nullptr;
  const DriverStatus status = d->module_load(&handle, cubin.data());
  if (const Status s = d->check(status, "loading a kernel"); !s.ok()) {
    if (status == kNoBinaryForGpu)
      return device_error(cat(s.error().message,
                              ": it was compiled for another architecture than "
                              "this GPU's: empty the kernel cache (tegula "
                              "doctor names it), set TEGULA_COMPILE_KERNELS=1, "
                              "or update the plug-in"));
    int version = 0;
    d->version(&version);
    return device_error(cat(s.error().message, ": the driver serves CUDA ", version / 1000, ".",
                            version % 1000 / 10,
                            "; a kernel of a newer compiler needs a newer one: "
                            "update the driver, or set TEGULA_NVRTC to an older compiler"));
  }
  watch_counter(handle);
  return Module(handle);
}

Module::~Module() {
  if (handle_ == nullptr) return;
  forget_counter(handle_);
  Driver::get().value()->module_unload(handle_);
}

Result<FunctionHandle> Module::function(const char* name, int smem_bytes) const {
  const Driver* d = TEGULA_TRY(Driver::get());
  FunctionHandle f = nullptr;
  TEGULA_TRY(d->check(d->module_function(&f, handle_, name), name));
  TEGULA_TRY(d->check(d->function_set(f, kMaxDynamicSharedBytes, smem_bytes), name));
  return f;
}

Result<int> device_attribute(DeviceAttribute which, int device) {
  const Driver* d = TEGULA_TRY(Driver::get());
  int value = 0;
  TEGULA_TRY(d->check(d->device_attribute(&value, static_cast<int>(which), device),
                      "cuDeviceGetAttribute"));
  return value;
}

namespace {
Result<int> current_device() {
  const Driver* d = TEGULA_TRY(Driver::get());
  int device = 0;
  TEGULA_TRY(d->check(d->current_device(&device), "cuCtxGetDevice"));
  return device;
}
}  // namespace

Result<int> current_capability() {
  const int device = TEGULA_TRY(current_device());
  const int major = TEGULA_TRY(device_attribute(DeviceAttribute::kCapabilityMajor, device));
  const int minor = TEGULA_TRY(device_attribute(DeviceAttribute::kCapabilityMinor, device));
  return 10 * major + minor;
}

Result<int> hopper_multiprocessors() {
  const int capability = TEGULA_TRY(current_capability());
  if (capability != 90)
    return unsupported(cat("this kernel needs compute capability 9.0, the device has ",
                           capability / 10, ".", capability % 10, "; use attention_mma"));
  return device_attribute(DeviceAttribute::kMultiprocessors, TEGULA_TRY(current_device()));
}

Result<HostTensorMap> tensor_map(void* data, int element_bytes, const int64_t (&dims)[4],
                                 const int64_t (&strides)[3], int rows) {
  const Driver* d = TEGULA_TRY(Driver::get());
  if (reinterpret_cast<uintptr_t>(data) % 16 != 0)
    return invalid_argument("a tensor of the Hopper kernel must be aligned to 16 bytes");
  uint64_t sizes[4], steps_bytes[3];
  for (int i = 0; i < 4; ++i) sizes[i] = static_cast<uint64_t>(dims[i]);
  for (int i = 0; i < 3; ++i) {
    if (strides[i] * element_bytes % 16 != 0 || strides[i] <= 0)
      return invalid_argument(cat("stride ", strides[i], " of dim ", i + 1,
                                  " is not a positive multiple of ", 16 / element_bytes,
                                  " elements: copy the tensor"));
    steps_bytes[i] = static_cast<uint64_t>(strides[i] * element_bytes);
  }
  const uint32_t box[4] = {128U / static_cast<uint32_t>(element_bytes), static_cast<uint32_t>(rows),
                           1, 1};
  const uint32_t every[4] = {1, 1, 1, 1};
  HostTensorMap map;
  TEGULA_TRY(
      d->check(d->tensor_map(&map, element_bytes == 1 ? kU8 : kBf16, 4, data, sizes, steps_bytes,
                             box, every, kNoInterleave, kSwizzle128, kPromote256, kFillZero),
               "cuTensorMapEncodeTiled"));
  return map;
}

}  // namespace tegula::cuda
