#include "tests/runtime/allocations.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>

namespace {
std::atomic<int64_t> count{0}, total{0};
void note(size_t bytes) {
  count.fetch_add(1, std::memory_order_relaxed);
  total.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
}
}  // namespace

namespace tegula::test {
Allocations allocations() { return {count.load(), total.load()}; }
}  // namespace tegula::test

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// A sanitizer's allocator tells; its mmap is left alone.
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void*, size_t),
                                                         void (*)(const volatile void*));
namespace {
[[maybe_unused]] const int installed = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, size_t bytes) { note(bytes); }, [](const volatile void*) {});
}  // namespace
#else
// In the executable, these come before the C library's.
extern "C" {
// NOLINTBEGIN(readability-identifier-naming)
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
// NOLINTEND(readability-identifier-naming)

void* malloc(size_t n) {
  note(n);
  return __libc_malloc(n);
}
void* calloc(size_t n, size_t size) {
  note(n * size);
  return __libc_calloc(n, size);
}
void* realloc(void* p, size_t n) {
  note(n);
  return __libc_realloc(p, n);
}
void* memalign(size_t alignment, size_t n) {
  note(n);
  return __libc_memalign(alignment, n);
}
void* aligned_alloc(size_t alignment, size_t n) { return memalign(alignment, n); }
int posix_memalign(void** out, size_t alignment, size_t n) {
  *out = memalign(alignment, n);
  return *out ? 0 : ENOMEM;
}
void* mmap(void* at, size_t n, int protection, int flags, int file, off_t offset) noexcept {
  note(n);
  return reinterpret_cast<void*>(syscall(SYS_mmap, at, n, protection, flags, file, offset));
}
}
#endif
