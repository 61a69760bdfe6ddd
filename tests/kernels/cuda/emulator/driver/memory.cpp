#include "tests/kernels/cuda/emulator/driver/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>

#include "tegula/base/str.h"

namespace tegula::emulated {

namespace {

constexpr size_t kAlignment_bytes = 256;
constexpr size_t kMostFreed = 256;  // whose addresses nobody else gets yet

struct Allocation {
  size_t bytes;
  char* pages;
  size_t pages_bytes;  // with the forbidden ones
};
struct Freed {
  uintptr_t begin;
  Allocation was;
};
struct Memory {
  std::mutex mutex;
  std::map<uintptr_t, Allocation> all;
  std::map<uintptr_t, size_t> pinned;  // sizes
  std::deque<Freed> freed;
  size_t used_bytes = 0;
};
Memory& memory() {
  static auto& m = *new Memory();  // outlives what its users hold
  return m;
}

size_t page_bytes() {
  static const auto bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}
size_t left_of(const Memory& m) { return total_bytes() - std::min(m.used_bytes, total_bytes()); }
size_t rounded(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

char* map_pages(size_t bytes) {
  const size_t page = page_bytes(), all = rounded(bytes, page) + 2 * page;
  void* mapped =
      ::mmap(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  char* pages = static_cast<char*>(mapped);
  if (::mprotect(pages + page, all - 2 * page, PROT_READ | PROT_WRITE) == 0) return pages;
  ::munmap(mapped, all);
  return nullptr;
}

}  // namespace

size_t total_bytes() { return static_cast<size_t>(setting("FAKE_CUDA_MEMORY_MIB", 1536)) << 20; }

size_t free_bytes() {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  return left_of(m);
}

char* guarded_pages(size_t bytes) {
  char* pages = map_pages(bytes);
  return pages != nullptr ? pages + page_bytes() : nullptr;
}

Status allocate(void** data, size_t bytes) {
  if (data == nullptr || bytes == 0) return kInvalidValue;
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  const size_t taken = rounded(bytes, kAlignment_bytes);
  if (taken > left_of(m)) return kOutOfMemory;
  char* pages = map_pages(taken);
  if (pages == nullptr) return kOutOfMemory;
  const size_t inside = rounded(taken, page_bytes());
  char* begin = pages + page_bytes() + inside - taken;
  std::memset(begin, 0xff, taken);
  m.used_bytes += taken;
  m.all[reinterpret_cast<uintptr_t>(begin)] = {bytes, pages, inside + 2 * page_bytes()};
  *data = begin;
  return kSuccess;
}

Contents contents() {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  Contents all;
  for (const auto& [begin, a] : m.all)
    all.emplace(begin, std::string(reinterpret_cast<const char*>(begin), a.bytes));
  return all;
}

Status release(void* data) {
  if (data == nullptr) return kSuccess;
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  const auto found = m.all.find(reinterpret_cast<uintptr_t>(data));
  if (found == m.all.end()) return kInvalidValue;
  const Allocation a = found->second;
  ::mprotect(a.pages, a.pages_bytes, PROT_NONE);
  ::madvise(a.pages, a.pages_bytes, MADV_DONTNEED);
  m.freed.push_front({found->first, a});
  if (m.freed.size() > kMostFreed) {
    const Allocation& oldest = m.freed.back().was;
    ::munmap(oldest.pages, oldest.pages_bytes);
    m.freed.pop_back();
  }
  m.used_bytes -= rounded(a.bytes, kAlignment_bytes);
  m.all.erase(found);
  return kSuccess;
}

Status allocate_pinned(void** data, size_t bytes) {
  if (data == nullptr || bytes == 0) return kInvalidValue;
  *data = std::aligned_alloc(kAlignment_bytes, rounded(bytes, kAlignment_bytes));
  if (*data == nullptr) return kOutOfMemory;
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  m.pinned[reinterpret_cast<uintptr_t>(*data)] = bytes;
  return kSuccess;
}

Status release_pinned(void* data) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  if (m.pinned.erase(reinterpret_cast<uintptr_t>(data)) == 0) return kInvalidValue;
  std::free(data);
  return kSuccess;
}

bool is_hosts(uintptr_t address) {
  constexpr uintptr_t kLeast = 1 << 16, kPastUser = uintptr_t{1} << 47;
  if (address < kLeast || address >= kPastUser) return false;
  unsigned char in_core = 0;
  if (::mincore(reinterpret_cast<void*>(address / page_bytes() * page_bytes()), 1, &in_core) != 0)
    return false;  // nothing is mapped there
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  const auto pinned = m.pinned.upper_bound(address);
  if (pinned != m.pinned.begin() && address < std::prev(pinned)->first + std::prev(pinned)->second)
    return false;
  const auto is_in = [address](const Allocation& a) {
    const auto pages = reinterpret_cast<uintptr_t>(a.pages);
    return address >= pages && address < pages + a.pages_bytes;
  };
  const auto after = m.all.upper_bound(address);
  if ((after != m.all.begin() && is_in(std::prev(after)->second)) ||
      (after != m.all.end() && is_in(after->second)))
    return false;
  return std::none_of(m.freed.begin(), m.freed.end(), [&](const Freed& f) { return is_in(f.was); });
}

std::string check_range(const void* data, size_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  if (address < page_bytes()) return bytes == 0 ? "" : describe_address(address);
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  auto found = m.all.upper_bound(address);
  if (found != m.all.begin()) {
    const auto& [begin, a] = *--found;
    if (address < begin + a.bytes) {
      const size_t left = begin + a.bytes - address;
      return bytes <= left ? ""
                           : cat(bytes - left, " bytes more than an allocation of ", a.bytes,
                                 " bytes has from byte ", address - begin, " on");
    }
  }
  for (const Freed& f : m.freed)
    if (address >= f.begin && address < f.begin + f.was.bytes)
      return cat("an allocation of ", f.was.bytes, " bytes that was freed");
  return "";
}

std::string describe_address(uintptr_t address) {
  if (address < page_bytes()) return cat(address, " bytes from the null pointer");
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  for (const auto& [begin, a] : m.all) {
    const auto pages = reinterpret_cast<uintptr_t>(a.pages);
    if (address < pages || address >= pages + a.pages_bytes) continue;
    const std::string of = cat(" an allocation of ", a.bytes, " bytes");
    if (address >= begin + a.bytes)
      return cat(address - begin - a.bytes, " bytes past the end of", of);
    if (address < begin) return cat(begin - address, " bytes before the begin of", of);
    return cat(address - begin, " bytes into", of);
  }
  for (const Freed& f : m.freed)
    if (address >= f.begin && address < f.begin + f.was.bytes)
      return cat(address - f.begin, " bytes into an allocation of ", f.was.bytes,
                 " bytes that was freed");
  return "no memory of the device";
}

}  // namespace tegula::emulated
