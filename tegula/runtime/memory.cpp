#include "tegula/runtime/memory.h"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "tegula/base/algorithm.h"
#include "tegula/base/container.h"
#include "tegula/base/round.h"
#include "tegula/comm/segment.h"
#include "tegula/io/file.h"
#include "tegula/kernels/device.h"
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

void MemoryAccount::take(int64_t bytes) { peak_.raise_to(live_.add(bytes)); }

Region::~Region() {
  if (!data_) return;
  if (device_)
    device_->release(data_);
  else if (area_)
    area_->give_back(data_, bytes_);
  else
    munmap(static_cast<uint8_t*>(data_) - guard_bytes_,
           static_cast<size_t>(round_up(bytes_, kPage) + 2 * guard_bytes_));
  account_->give_back(bytes_);
}

Region::Region(Region&& other) noexcept
    : account_(std::exchange(other.account_, nullptr)),
      device_(std::exchange(other.device_, nullptr)),
      area_(std::exchange(other.area_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      guard_bytes_(std::exchange(other.guard_bytes_, 0)) {}

Region& Region::operator=(Region&& other) noexcept {
  std::swap(account_, other.account_);
  std::swap(device_, other.device_);
  std::swap(area_, other.area_);
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
  void* p = MAP_FAILED;
  if (Area* area = account.area(); area && bytes <= machine) {
    if (void* taken = area->take(bytes)) p = taken, r.area_ = area, guard_bytes = 0;
  } else if (bytes <= machine) {
    p = map_pages(bytes, guard_bytes);
  }
  if (p == MAP_FAILED)
    return out_of_memory(cat("cannot allocate ", bytes, " bytes; the machine has ", machine,
                             ": use a smaller batch, sequence or model, or --memory"));
  r.data_ = p, r.bytes_ = bytes, r.guard_bytes_ = guard_bytes;
  account.take(bytes);
  return r;
}

Result<Region> Region::on(Device* device, MemoryAccount& account, int64_t bytes) {
  if (!device) return allocate(account, bytes);
  Region r;
  r.account_ = &account;
  if (bytes == 0) return r;
  r.data_ = TEGULA_TRY(device->allocate(bytes));
  r.device_ = device, r.bytes_ = bytes;
  account.take(bytes);
  TEGULA_TRY(device->fill(r.data_, 0, bytes));
  return r;
}

void Region::poison(uint8_t value, ThreadPool* pool) {
  if (device_) {
    const Status filled = device_->fill(data_, value, bytes_);
    TEGULA_CHECK(filled.ok(), filled.ok() ? "" : filled.error().message);
    return;
  }
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

// From the end, a piece at a time.
static int64_t touched_on(Device& device, const uint8_t* data, int64_t bytes, uint8_t value) {
  std::vector<uint8_t> piece(static_cast<size_t>(std::min<int64_t>(bytes, 16 << 20)));
  while (bytes > 0) {
    int64_t n = std::min(bytes, static_cast<int64_t>(piece.size()));
    const Status copied = device.copy(piece.data(), data + bytes - n, n);
    TEGULA_CHECK(copied.ok(), copied.ok() ? "" : copied.error().message);
    while (n > 0 && piece[static_cast<size_t>(n) - 1] == value) --n, --bytes;
    if (n > 0) break;
  }
  return bytes;
}

int64_t Region::touched(uint8_t value) const {
  if (device_) return touched_on(*device_, static_cast<const uint8_t*>(data_), bytes_, value);
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

namespace {
// From the first byte of a tensor to the last, and where its first element is among them.
struct Span {
  int64_t before = 0, bytes = 0;
};
Span span_of(const TensorRef& t) {
  Span s;
  if (t.numel() == 0) return s;
  int64_t behind = 0;
  for (int d = 0; d < t.rank; ++d) {
    const int64_t reach = (t.shape[d] - 1) * t.stride[d] * size_bytes(t.dtype);
    (reach < 0 ? s.before : behind) += std::abs(reach);
  }
  s.bytes = s.before + behind + size_bytes(t.dtype);
  return s;
}
}  // namespace

Result<TensorRef> on_host(const TensorRef& tensor, Device* device, std::vector<uint8_t>& buffer) {
  if (!device) return tensor;
  const Span s = span_of(tensor);
  buffer.resize(static_cast<size_t>(s.bytes));
  TEGULA_TRY(device->copy(buffer.data(), tensor.as<uint8_t>() - s.before, s.bytes));
  TensorRef host = tensor;
  host.data = buffer.data() + s.before;
  return host;
}

Status to_device(const TensorRef& host, const TensorRef& tensor, Device& device) {
  const Span s = span_of(tensor);
  return device.copy(tensor.as<uint8_t>() - s.before, host.as<uint8_t>() - s.before, s.bytes);
}

int64_t machine_memory() {
  static const int64_t bytes = usable_memory();
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
