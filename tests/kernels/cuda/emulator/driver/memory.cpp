#include "tests/kernels/cuda/emulator/driver/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

#include "tegula/base/str.h"

namespace tegula::emulated {

namespace {

constexpr size_t kAlignment_bytes = 256;
constexpr size_t kMostFreed = 256;  // freed ones that are remembered

struct Allocation {
  size_t bytes;
  char* pages;
  size_t pages_bytes;  // with the forbidden ones
};
struct Freed {
  uintptr_t begin;
  size_t bytes;
};
struct Memory {
  std::mutex mutex;
  std::map<uintptr_t, Allocation> all;
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

Status release(void* data) {
  if (data == nullptr) return kSuccess;
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  const auto found = m.all.find(reinterpret_cast<uintptr_t>(data));
  if (found == m.all.end()) return kInvalidValue;
  const Allocation a = found->second;
  m.freed.push_front({found->first, a.bytes});
  if (m.freed.size() > kMostFreed) m.freed.pop_back();
  m.used_bytes -= rounded(a.bytes, kAlignment_bytes);
  m.all.erase(found);
  ::munmap(a.pages, a.pages_bytes);
  return kSuccess;
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
    if (address >= f.begin && address < f.begin + f.bytes)
      return cat(address - f.begin, " bytes into an allocation of ", f.bytes,
                 " bytes that was freed");
  return "no memory of the device";
}

}  // namespace tegula::emulated
