#include "tests/kernels/cuda/emulator/driver/activity.h"

#include <chrono>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <vector>

namespace tegula::emulated {

namespace {

constexpr int kNotInitialized = 15, kMaxLimitReached = 12, kInsufficientPrivileges = 35;
constexpr size_t kRecordBytes = 160;  // at least those of any kind

struct Record {
  alignas(8) unsigned char bytes[kRecordBytes] = {};
};

using GiveBuffer = void (*)(uint8_t**, size_t*, size_t*);
using TakeBuffer = void (*)(void*, uint32_t, uint8_t*, size_t, size_t);

std::mutex mutex;
bool is_enabled[16] = {};
std::vector<Record> records;
GiveBuffer give = nullptr;
TakeBuffer take = nullptr;

uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count());
}

template <class T>
void put(Record& r, size_t at, T value) {
  std::memcpy(r.bytes + at, &value, sizeof value);
}

// CUpti_ActivityKernel, CUpti_ActivityMemcpy and CUpti_ActivityMemset: what they have in common
// stands first.
Record record_of(Activity kind, const char* name, size_t bytes, uint64_t begin, uint64_t end) {
  Record r;
  put(r, 0, static_cast<uint32_t>(kind));
  if (kind != Activity::kKernel) put(r, 8, static_cast<uint64_t>(bytes));
  put(r, 16, begin), put(r, 24, end);
  if (kind == Activity::kKernel) put(r, 104, name);
  return r;
}

}  // namespace

Outcome recorded(Activity kind, const char* name, size_t bytes,
                 const std::function<Outcome()>& work) {
  const uint64_t begin = now_ns();
  Outcome out = work();
  const std::lock_guard lock(mutex);
  if (is_enabled[static_cast<int>(kind)])
    records.push_back(record_of(kind, name, bytes, begin, now_ns()));
  return out;
}

}  // namespace tegula::emulated

using namespace tegula::emulated;

// NOLINTBEGIN(readability-identifier-naming): the names that callers look up
#define TEGULA_EXPORT extern "C" __attribute__((visibility("default"))) int

TEGULA_EXPORT cuptiActivityRegisterCallbacks(GiveBuffer gives, TakeBuffer takes) {
  give = gives, take = takes;
  return kSuccess;
}
// FAKE_CUPTI_REFUSES=1: as a driver that lets administrators profile alone.
TEGULA_EXPORT cuptiActivityEnable(int kind) {
  if (take == nullptr) return kNotInitialized;
  if (setting("FAKE_CUPTI_REFUSES", 0) != 0) return kInsufficientPrivileges;
  const std::lock_guard lock(mutex);
  is_enabled[kind] = true;
  return kSuccess;
}
TEGULA_EXPORT cuptiActivityDisable(int kind) {
  const std::lock_guard lock(mutex);
  is_enabled[kind] = false;
  return kSuccess;
}
// As many buffers as it takes.
TEGULA_EXPORT cuptiActivityFlushAll(uint32_t) {
  std::vector<Record> all;
  {
    const std::lock_guard lock(mutex);
    std::swap(all, records);
  }
  for (size_t done = 0; done < all.size();) {
    uint8_t* buffer = nullptr;
    size_t bytes = 0, most = 0;
    give(&buffer, &bytes, &most);
    size_t n = bytes / kRecordBytes;
    if (most > 0 && most < n) n = most;
    if (all.size() - done < n) n = all.size() - done;
    if (n == 0) return kOutOfMemory;
    std::memcpy(buffer, &all[done], n * kRecordBytes);
    take(nullptr, 0, buffer, bytes, n * kRecordBytes);
    done += n;
  }
  return kSuccess;
}
TEGULA_EXPORT cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid, uint8_t** record) {
  uint8_t* const next = *record == nullptr ? buffer : *record + kRecordBytes;
  if (next + kRecordBytes > buffer + valid) return kMaxLimitReached;
  *record = next;
  return kSuccess;
}
TEGULA_EXPORT cuptiActivityGetNumDroppedRecords(void*, uint32_t, size_t* n) {
  *n = 0;
  return kSuccess;
}
TEGULA_EXPORT cuptiGetResultString(int status, const char** text) {
  *text = status == kInsufficientPrivileges ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" : "an error";
  return kSuccess;
}
// NOLINTEND(readability-identifier-naming)
