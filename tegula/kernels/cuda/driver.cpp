#include "tegula/kernels/cuda/driver.h"

#include <dlfcn.h>

namespace tegula::cuda {

namespace {

// Values of the driver's enumerations.
constexpr int kMultiprocessorCount = 16, kCapabilityMajor = 75;
constexpr int kMaxDynamicSharedBytes = 8, kProgrammaticSerialization = 6;
constexpr int kBf16 = 9, kNoInterleave = 0, kSwizzle128 = 3, kPromote256 = 3, kFillZero = 0;

template <class F>
bool find(void* library, const char* name, F& call) {
  call = reinterpret_cast<F>(dlsym(library, name));
  return call != nullptr;
}

Result<Driver> open_driver() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return Error{Code::kDevice,
                 cat("no CUDA driver: ", dlerror(), "; run on the CPU, or install one")};
  Driver d;
  const bool complete =
      find(library, "cuInit", d.init) && find(library, "cuGetErrorString", d.error_string) &&
      find(library, "cuCtxGetDevice", d.current_device) &&
      find(library, "cuDeviceGetAttribute", d.device_attribute) &&
      find(library, "cuModuleLoadData", d.module_load) &&
      find(library, "cuModuleUnload", d.module_unload) &&
      find(library, "cuModuleGetFunction", d.module_function) &&
      find(library, "cuFuncSetAttribute", d.function_set) &&
      find(library, "cuLaunchKernel", d.launch) && find(library, "cuLaunchKernelEx", d.launch_ex) &&
      find(library, "cuTensorMapEncodeTiled", d.tensor_map);
  if (!complete)
    return Error{Code::kDevice, cat("the CUDA driver is too old: ", dlerror(),
                                    "; tensor maps need version 12.0 or newer")};
  TEGULA_TRY(d.check(d.init(0), "cuInit"));
  return d;
}

}  // namespace

Result<const Driver*> Driver::get() {
  static const Result<Driver> driver = open_driver();
  if (!driver.ok()) return driver.error();
  return &driver.value();
}

Status Driver::launch_early(FunctionHandle f, const int64_t (&blocks)[3], int threads,
                            int smem_bytes, StreamHandle stream, void** arguments,
                            const char* what) const {
  const LaunchAttribute early{kProgrammaticSerialization, {1}};
  const LaunchConfig config{{static_cast<unsigned>(blocks[0]), static_cast<unsigned>(blocks[1]),
                             static_cast<unsigned>(blocks[2])},
                            {static_cast<unsigned>(threads), 1, 1},
                            static_cast<unsigned>(smem_bytes),
                            stream,
                            &early,
                            1};
  return check(launch_ex(&config, f, arguments, nullptr), what);
}

Status Driver::check(DriverStatus status, const char* what) const {
  if (status == 0) return {};
  const char* text = nullptr;
  error_string(status, &text);
  return Error{Code::kDevice,
               cat(what, " failed: ", text != nullptr ? text : "unknown error", " (", status, ")")};
}

Result<Module> Module::load(const std::string& cubin) {
  const Driver* d = TEGULA_TRY(Driver::get());
  ModuleHandle handle = nullptr;
  TEGULA_TRY(d->check(d->module_load(&handle, cubin.data()), "loading a kernel"));
  return Module(handle);
}

Module::~Module() {
  if (handle_ != nullptr) Driver::get().value()->module_unload(handle_);
}

Result<FunctionHandle> Module::function(const char* name, int smem_bytes) const {
  const Driver* d = TEGULA_TRY(Driver::get());
  FunctionHandle f = nullptr;
  TEGULA_TRY(d->check(d->module_function(&f, handle_, name), name));
  TEGULA_TRY(d->check(d->function_set(f, kMaxDynamicSharedBytes, smem_bytes), name));
  return f;
}

Result<int> hopper_multiprocessors() {
  const Driver* d = TEGULA_TRY(Driver::get());
  int device = 0, major = 0, count = 0;
  TEGULA_TRY(d->check(d->current_device(&device), "cuCtxGetDevice"));
  TEGULA_TRY(d->check(d->device_attribute(&major, kCapabilityMajor, device), "device capability"));
  if (major != 9)
    return unsupported(cat("this kernel needs compute capability 9.0, the device has ", major,
                           ".x; use attention_tiled"));
  TEGULA_TRY(d->check(d->device_attribute(&count, kMultiprocessorCount, device), "device size"));
  return count;
}

Result<HostTensorMap> tensor_map_bf16(void* data, const int64_t (&dims)[4],
                                      const int64_t (&strides)[3], int rows) {
  const Driver* d = TEGULA_TRY(Driver::get());
  if (reinterpret_cast<uintptr_t>(data) % 16 != 0)
    return invalid_argument("a tensor of the Hopper kernel must be aligned to 16 bytes");
  uint64_t sizes[4], steps_bytes[3];
  for (int i = 0; i < 4; ++i) sizes[i] = static_cast<uint64_t>(dims[i]);
  for (int i = 0; i < 3; ++i) {
    if (strides[i] % 8 != 0 || strides[i] <= 0)
      return invalid_argument(cat("stride ", strides[i], " of dim ", i + 1,
                                  " is not a positive multiple of 8 elements: copy the tensor"));
    steps_bytes[i] = static_cast<uint64_t>(strides[i]) * 2;
  }
  const uint32_t box[4] = {64, static_cast<uint32_t>(rows), 1, 1};
  const uint32_t every[4] = {1, 1, 1, 1};
  HostTensorMap map;
  TEGULA_TRY(d->check(d->tensor_map(&map, kBf16, 4, data, sizes, steps_bytes, box, every,
                                    kNoInterleave, kSwizzle128, kPromote256, kFillZero),
                      "cuTensorMapEncodeTiled"));
  return map;
}

}  // namespace tegula::cuda
