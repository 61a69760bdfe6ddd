#include "tegula/runtime/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <utility>

namespace tegula {

namespace {
std::atomic<int64_t> live{0};
std::atomic<int64_t> peak{0};
constexpr int64_t kHugePage = 2 << 20;
}  // namespace

Region::~Region() {
  if (!data_) return;
  munmap(data_, static_cast<size_t>(bytes_));
  live.fetch_sub(bytes_);
}

Region::Region(Region&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Region& Region::operator=(Region&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Result<Region> Region::allocate(int64_t bytes) {
  Region r;
  if (bytes == 0) return r;
  const int64_t machine = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  void* p = bytes > machine ? MAP_FAILED
                            : mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED)
    return out_of_memory(cat("cannot allocate ", bytes, " bytes; the machine has ", machine,
                             ": use a smaller batch, sequence or model, or --memory"));
  if (bytes >= kHugePage) madvise(p, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  r.data_ = p, r.bytes_ = bytes;
  const int64_t now = live.fetch_add(bytes) + bytes;
  int64_t old = peak.load();
  while (now > old && !peak.compare_exchange_weak(old, now)) {
  }
  return r;
}

void Region::poison(uint8_t value) {
  if (data_) std::memset(data_, value, static_cast<size_t>(bytes_));
}

int64_t Region::touched(uint8_t value) const {
  const auto* p = static_cast<const uint8_t*>(data_);
  int64_t n = bytes_;
  while (n > 0 && p[n - 1] == value) --n;
  return n;
}

int64_t Region::live_bytes() { return live.load(); }
int64_t Region::peak_bytes() { return peak.load(); }
void Region::reset_peak() { peak.store(live.load()); }

}  // namespace tegula
