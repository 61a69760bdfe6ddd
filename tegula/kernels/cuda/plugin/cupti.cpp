#include "tegula/kernels/cuda/plugin/cupti.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <mutex>

#include "tegula/base/algorithm.h"

namespace tegula::cuda {

namespace {

// CUPTI's own types, as its ABI has them.
using CuptiStatus = int;  // CUptiResult
constexpr CuptiStatus kNoRights = 35, kNoRightsVirtualized = 40;
constexpr int kMemcpy = 1, kMemset = 2, kConcurrentKernel = 10;  // CUpti_ActivityKind
constexpr unsigned kForced = 1;
constexpr size_t kBufferBytes = size_t{1} << 20, kBufferAlignment = 8;

// CUpti_ActivityKernel, Memcpy and Memset have grown at their ends from version to version; what
// is read here lies where it has lain in all that CUDA 12 and 13 have.
struct Record {
  uint32_t kind;
  uint32_t unused;
  uint64_t bytes;  // of a copy or fill
  uint64_t start_ns, end_ns;
};
constexpr size_t kNameAt = 104;  // of a kernel

struct Cupti {
  CuptiStatus (*enable)(int);
  CuptiStatus (*disable)(int);
  CuptiStatus (*flush)(uint32_t);
  CuptiStatus (*next)(uint8_t*, size_t, uint8_t**);
  CuptiStatus (*dropped)(void*, uint32_t, size_t*);
  CuptiStatus (*error_string)(CuptiStatus, const char**);
  CuptiStatus (*set_callbacks)(void (*)(uint8_t**, size_t*, size_t*),
                               void (*)(void*, uint32_t, uint8_t*, size_t, size_t));

  Status check(CuptiStatus status, const char* what) const {
    if (status == 0) return {};
    const char* text = nullptr;
    if (error_string(status, &text) != 0 || text == nullptr) text = "unknown";
    const bool no_rights = status == kNoRights || status == kNoRightsVirtualized;
    return unsupported(cat("CUPTI: ", what, ": ", text, " (", status, ")",
                           no_rights ? ": the driver lets only administrators profile "
                                       "(NVreg_RestrictProfilingToAdminUsers)"
                                     : ""));
  }
};

// Times by the device's clock, which doubles do not hold to the nanosecond.
struct Activity {
  DeviceSpan span;
  uint64_t start_ns = 0, end_ns = 0;
};

// The records that CUPTI handed over, from threads of its own.
struct Collected {
  std::mutex mutex;
  std::vector<Activity> activities;
  const Cupti* cupti = nullptr;
};
// Never destroyed: CUPTI's threads may end after statics do.
Collected& collected() {
  static auto& all = *new Collected();
  return all;
}

void give_buffer(uint8_t** buffer, size_t* bytes, size_t* most_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
  *bytes = *buffer == nullptr ? 0 : kBufferBytes;
  *most_records = 0;  // as many as fit
}

Activity activity_of(const uint8_t* record) {
  Record r{};
  std::memcpy(&r, record, sizeof r);
  Activity a{.span = {}, .start_ns = r.start_ns, .end_ns = r.end_ns};
  DeviceSpan& s = a.span;
  if (r.kind == kConcurrentKernel) {
    const char* name = nullptr;
    std::memcpy(&name, record + kNameAt, sizeof name);
    s.name = name == nullptr ? "" : name;
  } else {
    s.kind = r.kind == kMemcpy ? DeviceSpan::kCopy : DeviceSpan::kFill;
    s.bytes = static_cast<int64_t>(r.bytes);
  }
  return a;
}

void take_buffer(void*, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  Collected& to = collected();
  const std::lock_guard lock(to.mutex);
  uint8_t* record = nullptr;
  while (valid > 0 && to.cupti->next(buffer, valid, &record) == 0) {
    uint32_t kind = 0;
    std::memcpy(&kind, record, sizeof kind);
    if (kind == kMemcpy || kind == kMemset || kind == kConcurrentKernel)
      to.activities.push_back(activity_of(record));
  }
  std::free(buffer);
}

template <class F>
bool find(void* library, const char* name, F& call) {
  call = reinterpret_cast<F>(dlsym(library, name));
  return call != nullptr;
}

void* find_library() {
  if (const char* own = std::getenv("TEGULA_CUPTI")) return dlopen(own, RTLD_NOW | RTLD_LOCAL);
  constexpr const char* kNames[] = {"libcupti.so.13", "libcupti.so.12",
                                    "/usr/local/cuda/lib64/libcupti.so",
                                    "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so"};
  for (const char* name : kNames)
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  return nullptr;
}

Result<Cupti> open_cupti() {
  void* library = find_library();
  if (library == nullptr)
    return unsupported(cat("no CUPTI: ", dlerror(),
                           "; install CUDA's CUPTI 12 or 13 (cuda-cupti, or nvidia-cuda-cupti from "
                           "PyPI), or set TEGULA_CUPTI to its path"));
  Cupti c{};
  const bool has_all = find(library, "cuptiActivityEnable", c.enable) &&
                       find(library, "cuptiActivityDisable", c.disable) &&
                       find(library, "cuptiActivityFlushAll", c.flush) &&
                       find(library, "cuptiActivityGetNextRecord", c.next) &&
                       find(library, "cuptiActivityGetNumDroppedRecords", c.dropped) &&
                       find(library, "cuptiGetResultString", c.error_string) &&
                       find(library, "cuptiActivityRegisterCallbacks", c.set_callbacks);
  if (!has_all) return unsupported(cat("libcupti lacks a call: ", dlerror()));
  return c;
}

Result<const Cupti*> the_cupti() {
  static const auto& opened = *new Result<Cupti>([]() -> Result<Cupti> {
    const Cupti c = TEGULA_TRY(open_cupti());
    TEGULA_TRY(
        c.check(c.set_callbacks(give_buffer, take_buffer), "cuptiActivityRegisterCallbacks"));
    return c;
  }());
  if (!opened.ok()) return opened.error();
  collected().cupti = &*opened;
  return &*opened;
}

constexpr int kKinds[] = {kMemcpy, kMemset, kConcurrentKernel};

}  // namespace

Status begin_activity() {
  const Cupti* c = TEGULA_TRY(the_cupti());
  TEGULA_TRY(c->check(c->flush(kForced), "cuptiActivityFlushAll"));
  {
    const std::lock_guard lock(collected().mutex);
    collected().activities.clear();
  }
  for (const int kind : kKinds) TEGULA_TRY(c->check(c->enable(kind), "cuptiActivityEnable"));
  return {};
}

Result<std::vector<DeviceSpan>> end_activity() {
  const Cupti* c = TEGULA_TRY(the_cupti());
  TEGULA_TRY(c->check(c->flush(kForced), "cuptiActivityFlushAll"));
  for (const int kind : kKinds) TEGULA_TRY(c->check(c->disable(kind), "cuptiActivityDisable"));
  size_t n_dropped = 0;
  if (c->dropped(nullptr, 0, &n_dropped) == 0 && n_dropped > 0)
    return unsupported(cat("CUPTI dropped ", n_dropped, " records: trace fewer steps"));
  Collected& from = collected();
  const std::lock_guard lock(from.mutex);
  std::vector<Activity> all;
  std::swap(all, from.activities);
  std::stable_sort(all.begin(), all.end(),
                   [](const Activity& a, const Activity& b) { return a.start_ns < b.start_ns; });
  std::vector<DeviceSpan> spans;
  for (Activity& a : all) {
    const uint64_t first = all[0].start_ns;
    a.span.begin_ms = static_cast<double>(a.start_ns - first) / 1e6;
    a.span.end_ms = static_cast<double>(a.end_ns - first) / 1e6;
    spans.push_back(std::move(a.span));
  }
  return spans;
}

}  // namespace tegula::cuda
