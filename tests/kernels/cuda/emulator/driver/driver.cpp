// The calls of the CUDA driver that the plug-in makes, on a device that is this host: see README.md
// for what the environment changes.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "tegula/base/str.h"
#include "tests/kernels/cuda/emulator/driver/activity.h"
#include "tests/kernels/cuda/emulator/driver/launch.h"
#include "tests/kernels/cuda/emulator/driver/memory.h"
#include "tests/kernels/cuda/emulator/driver/stream.h"

namespace tegula::emulated {

namespace {

std::mutex text_mutex;
std::string& last_failure() {
  static auto& text = *new std::string();
  return text;
}

Outcome copy(void* to, const void* from, size_t bytes) {
  for (const void* side : {static_cast<const void*>(to), from})
    if (const std::string why = check_range(side, bytes); !why.empty())
      return {kInvalidValue,
              cat("a copy of ", bytes, " bytes ", side == to ? "to " : "from ", why)};
  std::memcpy(to, from, bytes);
  return {};
}
Outcome fill(void* to, unsigned char value, size_t bytes) {
  if (const std::string why = check_range(to, bytes); !why.empty())
    return {kInvalidValue, cat("a fill of ", bytes, " bytes of ", why)};
  std::memset(to, value, bytes);
  return {};
}

}  // namespace

int setting(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}

Status check_not_lost(bool is_launch) {
  static std::atomic<int> launches = 0;
  const int last = setting("FAKE_CUDA_LOST", 0);
  const int now = is_launch ? ++launches : launches.load();
  return last > 0 && now >= last ? kUnknown : kSuccess;
}

int told(const Outcome& outcome) {
  if (outcome.status != kSuccess && !outcome.message.empty()) {
    const std::lock_guard lock(text_mutex);
    last_failure() = outcome.message;
    if (setting("FAKE_CUDA_QUIET", 0) == 0)
      std::fprintf(stderr, "emulated GPU: %s\n", outcome.message.c_str());
  }
  return outcome.status;
}

}  // namespace tegula::emulated

using namespace tegula::emulated;

// NOLINTBEGIN(readability-identifier-naming): the names that callers look up
#define TEGULA_EXPORT extern "C" __attribute__((visibility("default"))) int

TEGULA_EXPORT cuDriverGetVersion(int* version) {
  *version = setting("FAKE_CUDA_VERSION", 13000);
  return kSuccess;
}
TEGULA_EXPORT cuInit(unsigned) {
  return setting("FAKE_CUDA_DEVICES", 1) > 0 ? kSuccess : kNoDevice;
}

TEGULA_EXPORT cuGetErrorString(int status, const char** text) {
  static constexpr struct {
    int status;
    const char* text;
  } kTexts[] = {
      {kSuccess, "no error"},
      {kOutOfMemory, "out of memory"},
      {kInvalidImage, "device kernel image is invalid"},
      {kNoBinaryForGpu, "no kernel image for the device"},
      {kNotFound, "named symbol not found"},
      {kUnknown, "unknown error"},
      {kCaptureUnsupported, "operation not permitted when stream is capturing"},
      {kCaptureInvalidated, "operation failed due to a previous error during capture"},
      {kCaptureUnjoined, "a captured stream was not joined to the one that the capture began in"},
      {kCaptureImplicit, "the null stream was used during a capture"},
  };
  const std::lock_guard lock(text_mutex);
  const bool has_own = status == kIllegalAddress || status == kLaunchFailed ||
                       status == kInvalidValue || status == kLaunchOutOfResources;
  if (has_own && !last_failure().empty()) {
    static auto& kept = *new std::string();  // what is given out stays valid until the next
    kept = last_failure();
    *text = kept.c_str();
    return kSuccess;
  }
  const auto* known = std::find_if(std::begin(kTexts), std::end(kTexts),
                                   [status](const auto& t) { return t.status == status; });
  *text = known != std::end(kTexts) ? known->text : "fake";
  return kSuccess;
}

TEGULA_EXPORT cuDeviceGetCount(int* n) {
  *n = setting("FAKE_CUDA_DEVICES", 1);
  return kSuccess;
}
TEGULA_EXPORT cuDeviceGet(int* device, int which) {
  *device = which;
  return kSuccess;
}
TEGULA_EXPORT cuDeviceGetName(char* name, int size, int) {
  std::snprintf(name, static_cast<size_t>(size), "Fake GPU");
  return kSuccess;
}
TEGULA_EXPORT cuDeviceTotalMem_v2(size_t* bytes, int) {
  *bytes = total_bytes();
  return kSuccess;
}
TEGULA_EXPORT cuDeviceGetAttribute(int* value, int which, int) {
  const int capability = setting("FAKE_CUDA_CAPABILITY", 90);
  switch (which) {
    case 13:
      *value = 1000000;
      break;  // kHz of multiprocessors
    case 16:
      *value = setting("FAKE_CUDA_MULTIPROCESSORS", 132);
      break;
    case 36:
      *value = 1000000;
      break;  // kHz of memory
    case 37:
      *value = 1024;
      break;  // bits of its bus
    case 38:
      *value = 50 << 20;
      break;  // bytes of L2
    case 75:
      *value = capability / 10;
      break;
    case 76:
      *value = capability % 10;
      break;
    default:
      return kInvalidValue;
  }
  return kSuccess;
}
TEGULA_EXPORT cuDevicePrimaryCtxRetain(void** context, int) {
  static char the_context;
  *context = &the_context;
  return kSuccess;
}
TEGULA_EXPORT cuCtxSetCurrent(void*) { return kSuccess; }
TEGULA_EXPORT cuCtxGetDevice(int* device) {
  *device = 0;
  return kSuccess;
}

TEGULA_EXPORT cuMemAlloc_v2(void** data, size_t bytes) {
  const Status s = check_not_captured();
  return s != kSuccess ? s : allocate(data, bytes);
}
TEGULA_EXPORT cuMemFree_v2(void* data) {
  const Status s = check_not_captured();
  return s != kSuccess ? s : release(data);
}
TEGULA_EXPORT cuMemHostAlloc(void** data, size_t bytes, unsigned) {
  if (const Status s = check_not_captured(); s != kSuccess) return s;
  return allocate_pinned(data, bytes);
}
TEGULA_EXPORT cuMemFreeHost(void* data) {
  if (const Status s = check_not_captured(); s != kSuccess) return s;
  return release_pinned(data);
}
TEGULA_EXPORT cuMemGetInfo_v2(size_t* n_free, size_t* n_total) {
  *n_free = free_bytes(), *n_total = total_bytes();
  return kSuccess;
}
TEGULA_EXPORT cuMemcpy(void* to, const void* from, size_t bytes) {
  if (const Status lost = check_not_lost(); lost != kSuccess) return lost;
  const Status s = check_not_captured();
  if (s != kSuccess) return s;
  return told(recorded(Activity::kCopy, nullptr, bytes, [=] { return copy(to, from, bytes); }));
}
TEGULA_EXPORT cuMemsetD8_v2(void* to, unsigned char value, size_t bytes) {
  if (const Status lost = check_not_lost(); lost != kSuccess) return lost;
  const Status s = check_not_captured();
  return s != kSuccess ? s : told(fill(to, value, bytes));
}
TEGULA_EXPORT cuMemcpyAsync(void* to, const void* from, size_t bytes, void* stream) {
  if (const Status lost = check_not_lost(); lost != kSuccess) return lost;
  return told(enqueue(stream_of(stream), [=] {
    return recorded(Activity::kCopy, nullptr, bytes, [=] { return copy(to, from, bytes); });
  }));
}
TEGULA_EXPORT cuMemsetD8Async(void* to, unsigned char value, size_t bytes, void* stream) {
  return told(enqueue(stream_of(stream), [=] {
    return recorded(Activity::kFill, nullptr, bytes, [=] { return fill(to, value, bytes); });
  }));
}

TEGULA_EXPORT cuModuleLoadData(void** module, const void* image) {
  if (const Status s = check_not_captured(); s != kSuccess) return s;
  if (const int s = setting("FAKE_CUDA_LOAD", 0); s != 0) return s;
  Module* loaded = nullptr;
  const int status = told(Module::load(image, &loaded));
  *module = loaded;
  return status;
}
TEGULA_EXPORT cuModuleUnload(void* module) {
  if (module == nullptr) return kInvalidHandle;
  static_cast<Module*>(module)->unload();
  return kSuccess;
}
TEGULA_EXPORT cuModuleGetFunction(void** function, void* module, const char* name) {
  *function = module != nullptr ? static_cast<Module*>(module)->function(name) : nullptr;
  return *function != nullptr ? kSuccess : kNotFound;
}
TEGULA_EXPORT cuModuleGetGlobal_v2(void** at, size_t* bytes, void* module, const char* name) {
  *at = module != nullptr ? static_cast<Module*>(module)->global(name) : nullptr;
  if (bytes != nullptr) *bytes = sizeof(long long);  // of those that there are
  return *at != nullptr ? kSuccess : kNotFound;
}
TEGULA_EXPORT cuFuncSetAttribute(void* function, int which, int value) {
  constexpr int kDynamicShared = 8;
  if (function == nullptr || which != kDynamicShared || value < 0 ||
      value > static_cast<int>(most_shared_bytes()))
    return kInvalidValue;
  auto& bytes = static_cast<Function*>(function)->dynamic_bytes;
  bytes = std::max(bytes, static_cast<unsigned>(value));
  return kSuccess;
}

static int launch_kernel(const unsigned* dims, unsigned smem, void* f, void* stream,
                         void** arguments, bool is_cooperative) {
  if (const Status s = check_not_lost(true); s != kSuccess) return s;
  Launch launch;
  const Outcome made =
      make_launch(static_cast<const Function*>(f), {dims[0], dims[1], dims[2]},
                  {dims[3], dims[4], dims[5]}, smem, arguments, is_cooperative, launch);
  if (made.status != kSuccess) return told(made);
  const Kernel* kernel = launch.function->kernel;
  const char* name = kernel == nullptr ? "a real kernel" : kernel->name;
  return told(enqueue(stream_of(stream), [launch = std::move(launch), name] {
    return recorded(Activity::kKernel, name, 0, [&] { return run(launch); });
  }));
}
TEGULA_EXPORT cuLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                             unsigned by, unsigned bz, unsigned smem, void* stream,
                             void** arguments, void**) {
  const unsigned dims[] = {gx, gy, gz, bx, by, bz};
  return launch_kernel(dims, smem, f, stream, arguments, false);
}
TEGULA_EXPORT cuLaunchKernelEx(const unsigned* config, void* f, void** arguments, void**) {
  // CUlaunchConfig: seven numbers, a stream, attributes and how many; CUlaunchAttribute: an id, 64
  // bytes from the eighth on.
  constexpr int kCooperative = 2, kWordsOfAttribute = 18;
  void* stream = nullptr;
  const int* attribute = nullptr;
  std::memcpy(&stream, config + 8, sizeof stream);
  std::memcpy(&attribute, config + 10, sizeof attribute);
  bool is_cooperative = false;
  for (unsigned i = 0; i < config[12]; ++i, attribute += kWordsOfAttribute)
    is_cooperative |= attribute[0] == kCooperative && attribute[2] != 0;
  return launch_kernel(config, config[6], f, stream, arguments, is_cooperative);
}
// Takes up to 4 dims; whole elements, in steps of one; without a swizzle, or that of 128 bytes.
TEGULA_EXPORT cuTensorMapEncodeTiled(void* map, int type, uint32_t rank, void* data,
                                     const uint64_t* dims, const uint64_t* strides,
                                     const uint32_t* box, const uint32_t*, int, int swizzle, int,
                                     int) {
  constexpr int kU8 = 0, kU16 = 1, kF16 = 6, kBf16 = 9, kSwizzle128 = 3;
  if (rank == 0 || rank > 4 || reinterpret_cast<uintptr_t>(data) % 16 != 0 ||
      (swizzle != 0 && swizzle != kSwizzle128))
    return kInvalidValue;
  TensorBox out{};
  out.mark = kTensorBoxMark, out.data = static_cast<char*>(data);
  out.element_bytes = type == kU8 ? 1 : type == kU16 || type == kF16 || type == kBf16 ? 2 : 4;
  out.is_swizzled = swizzle == kSwizzle128;
  for (uint32_t i = 0; i < 4; ++i) {
    out.dims[i] = i < rank ? dims[i] : 1, out.box[i] = i < rank ? box[i] : 1;
    if (i > 0) out.strides[i - 1] = i < rank ? strides[i - 1] : 0;
    if (out.box[i] > 256 || (i > 0 && out.strides[i - 1] % 16 != 0)) return kInvalidValue;
  }
  if (out.is_swizzled && out.box[0] * out.element_bytes > 128) return kInvalidValue;
  std::memset(map, 0, 128);
  std::memcpy(map, &out, sizeof out);
  return kSuccess;
}
// NOLINTEND(readability-identifier-naming)
