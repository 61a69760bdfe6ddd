#include "tegula/kernels/cuda/plugin/ahead.h"

#include <charconv>
#include <map>

#include "tegula/kernels/cuda/cache.h"

// The file that tegula_cuda_compile --pack wrote: see pack_of() there.
asm(".section .rodata\n"
    ".balign 16\n"
    "tegula_ahead_begin:\n"
    ".incbin \"" TEGULA_AHEAD_PACK
    "\"\n"
    "tegula_ahead_end:\n"
    ".byte 0\n"
    ".previous\n");
extern "C" __attribute__((visibility("hidden"))) const char tegula_ahead_begin[],
    tegula_ahead_end[];

namespace tegula::cuda {

namespace {
// Lines "key size", an empty line, and the cubins one after the other.
std::map<std::string_view, std::string_view> read_pack() {
  std::map<std::string_view, std::string_view> entries;
  std::string_view pack(tegula_ahead_begin,
                        static_cast<size_t>(tegula_ahead_end - tegula_ahead_begin));
  const size_t head_end = pack.find("\n\n");
  if (head_end == pack.npos) return entries;
  std::string_view head = pack.substr(0, head_end + 1), body = pack.substr(head_end + 2);
  while (!head.empty()) {
    const size_t space = head.find(' '), end = head.find('\n');
    size_t size = 0;
    std::from_chars(head.data() + space + 1, head.data() + end, size);
    entries[head.substr(0, space)] = body.substr(0, size);
    body.remove_prefix(size), head.remove_prefix(end + 1);
  }
  return entries;
}

const std::map<std::string_view, std::string_view>& entries() {
  static const auto pack = read_pack();
  return pack;
}
}  // namespace

std::string_view ahead_cubin(std::string_view source, std::span<const std::string> defines,
                             std::string_view arch) {
  if (entries().empty()) return {};
  const auto found = entries().find(kernel_key(source, defines, arch, kAheadVersion));
  return found == entries().end() ? std::string_view() : found->second;
}

int ahead_count() { return static_cast<int>(entries().size()); }

}  // namespace tegula::cuda
