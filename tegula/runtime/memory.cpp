#include "tegula/runtime/memory.h"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tegula/base/round.h"
#include "tegula/io/file.h"
#include "tegula/kernels/target.h"

namespace tegula {

namespace {
constexpr int64_t kPage = 4096, kHugePage = 2 << 20;

// Pages that begin on a huge one, if they fill one: a block of the kernel's own choice begins
// anywhere, and a weight of 2 MiB would get none.
// With `guard` bytes on both sides that nobody may touch.
void* map_pages(int64_t bytes, int64_t guard) {
  const int64_t spare = bytes >= kHugePage ? kHugePage : 0, size = round_up(bytes, kPage);
  const int64_t all = size + 2 * guard;
  void* p =
      mmap(nullptr, static_cast<size_t>(all + spare),
           guard > 0 ? PROT_NONE : PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return p;
  auto* start = static_cast<uint8_t*>(p);
  if (spare > 0) {
    const auto at = reinterpret_cast<uintptr_t>(p) + static_cast<uintptr_t>(guard);
    const auto before = static_cast<int64_t>(-at % kHugePage);
    if (before > 0) munmap(start, static_cast<size_t>(before));
    if (before < spare) munmap(start + before + all, static_cast<size_t>(spare - before));
    start += before;
  }
  if (guard > 0 &&
      mprotect(start + guard, static_cast<size_t>(size), PROT_READ | PROT_WRITE) != 0) {
    munmap(start, static_cast<size_t>(all));
    return MAP_FAILED;
  }
  if (spare > 0) madvise(start + guard, static_cast<size_t>(size), MADV_HUGEPAGE);
  return start + guard;
}
}  // namespace

void MemoryAccount::take(int64_t bytes) {
  const int64_t now = live_.fetch_add(bytes) + bytes;
  int64_t old = peak_.load();
  while (now > old && !peak_.compare_exchange_weak(old, now)) {
  }
}

Region::~Region() {
  if (!data_) return;
  munmap(static_cast<uint8_t*>(data_) - guard_bytes_,
         static_cast<size_t>(round_up(bytes_, kPage) + 2 * guard_bytes_));
  account_->give_back(bytes_);
}

Region::Region(Region&& other) noexcept
    : account_(std::exchange(other.account_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      guard_bytes_(std::exchange(other.guard_bytes_, 0)) {}

Region& Region::operator=(Region&& other) noexcept {
  std::swap(account_, other.account_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(guard_bytes_, other.guard_bytes_);
  return *this;
}

Result<Region> Region::allocate(MemoryAccount& account, int64_t bytes) {
  return allocate(account, bytes, 0);
}
Result<Region> Region::between_guards(MemoryAccount& account, int64_t bytes) {
  return allocate(account, bytes, kPage);
}

Result<Region> Region::allocate(MemoryAccount& account, int64_t bytes, int64_t guard_bytes) {
  Region r;
  r.account_ = &account;
  if (bytes == 0) return r;
  const int64_t machine = machine_memory();
  void* p = bytes > machine ? MAP_FAILED : map_pages(bytes, guard_bytes);
  if (p == MAP_FAILED)
    return out_of_memory(cat("cannot allocate ", bytes, " bytes; the machine has ", machine,
                             ": use a smaller batch, sequence or model, or --memory"));
  r.data_ = p, r.bytes_ = bytes, r.guard_bytes_ = guard_bytes;
  account.take(bytes);
  return r;
}

void Region::poison(uint8_t value, ThreadPool* pool) {
  const int64_t all = round_up(bytes_, kPage);
  const auto part = [&](int64_t i) {
    const int64_t at = i * kHugePage;
    std::memset(static_cast<uint8_t*>(data_) + at, value,
                static_cast<size_t>(std::min(kHugePage, all - at)));
  };
  const int64_t parts = (all + kHugePage - 1) / kHugePage;
  if (pool) return pool->parallel_for(parts, [&](int64_t i, int) { part(i); });
  for (int64_t i = 0; i < parts; ++i) part(i);
}

int64_t Region::touched(uint8_t value) const {
  const auto* p = static_cast<const uint8_t*>(data_);
  int64_t n = round_up(bytes_, kPage);
  // A page at a time: all alike, if the last is and each is the next one's like.
  const auto is_untouched = [&](const uint8_t* page) {
    return page[kPage - 1] == value && std::memcmp(page, page + 1, kPage - 1) == 0;
  };
  while (n > 0 && is_untouched(p + n - kPage)) n -= kPage;
  while (n > 0 && p[n - 1] == value) --n;
  return n;
}

int64_t machine_memory() {
  static const int64_t bytes = [] {
    int64_t least = Target::one_thread().memory_bytes;
    for (const char* limit :
         {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"})
      if (const auto text = read_file(limit); text.ok())
        if (const int64_t most = std::strtoll(text->c_str(), nullptr, 10); most > 0)  // else "max"
          least = std::min(least, most);
    return least;
  }();
  return bytes;
}

ProcessMemory process_memory(int64_t regions_bytes) {
  ProcessMemory m;
  if (const auto statm = read_file("/proc/self/statm"); statm.ok()) {
    const size_t at = statm->find(' ');  // size in pages, then those that are there
    if (at != statm->npos)
      m.touched_bytes = std::strtoll(statm->c_str() + at, nullptr, 10) * sysconf(_SC_PAGE_SIZE);
  }
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) m.peak_touched_bytes = int64_t{usage.ru_maxrss} << 10;
  m.peak_touched_bytes = std::max(m.peak_touched_bytes, m.touched_bytes);
  const auto heap = mallinfo2();  // of all threads; 0 where a sanitizer's allocator is in its place
  m.allocated_bytes = static_cast<int64_t>(heap.uordblks + heap.hblkhd) + regions_bytes;
  return m;
}

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
