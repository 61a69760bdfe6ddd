#include "tegula/runtime/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "tegula/base/round.h"

namespace tegula {

namespace {
std::atomic<int64_t> live{0};
std::atomic<int64_t> peak{0};
constexpr int64_t kPage = 4096, kHugePage = 2 << 20;

// Pages that begin on a huge one, if they fill one: a block of the kernel's own choice begins
// anywhere, and a weight of 2 MiB would get none.
void* map_pages(int64_t bytes) {
  const int64_t spare = bytes >= kHugePage ? kHugePage : 0, size = round_up(bytes, kPage);
  void* p = mmap(nullptr, static_cast<size_t>(size + spare), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED || spare == 0) return p;
  auto* start = static_cast<uint8_t*>(p);
  const auto at = reinterpret_cast<uintptr_t>(p);
  const auto before = static_cast<int64_t>(-at % kHugePage);
  if (before > 0) munmap(start, static_cast<size_t>(before));
  if (before < spare) munmap(start + before + size, static_cast<size_t>(spare - before));
  madvise(start + before, static_cast<size_t>(size), MADV_HUGEPAGE);
  return start + before;
}
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
  void* p = bytes > machine ? MAP_FAILED : map_pages(bytes);
  if (p == MAP_FAILED)
    return out_of_memory(cat("cannot allocate ", bytes, " bytes; the machine has ", machine,
                             ": use a smaller batch, sequence or model, or --memory"));
  r.data_ = p, r.bytes_ = bytes;
  const int64_t now = live.fetch_add(bytes) + bytes;
  int64_t old = peak.load();
  while (now > old && !peak.compare_exchange_weak(old, now)) {
  }
  return r;
}

void Region::poison(uint8_t value, ThreadPool* pool) {
  const auto part = [&](int64_t i) {
    const int64_t at = i * kHugePage;
    std::memset(static_cast<uint8_t*>(data_) + at, value,
                static_cast<size_t>(std::min(kHugePage, bytes_ - at)));
  };
  const int64_t parts = (bytes_ + kHugePage - 1) / kHugePage;
  if (pool) return pool->parallel_for(parts, [&](int64_t i, int) { part(i); });
  for (int64_t i = 0; i < parts; ++i) part(i);
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

int memory_nodes() {
  static const int n = [] {
    int nodes = 0;
    while (access(cat("/sys/devices/system/node/node", nodes).c_str(), F_OK) == 0) ++nodes;
    return std::max(nodes, 1);
  }();
  return n;
}

void first_touch(void* data, int64_t bytes, ThreadPool& pool) {
  pool.parallel_for((bytes + kPage - 1) / kPage, [&](int64_t i, int) {
    volatile uint8_t* p = static_cast<uint8_t*>(data) + i * kPage;
    *p = *p;
  });
}

}  // namespace tegula
