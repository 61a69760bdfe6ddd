#include "tegula/kernels/cuda/cache_entry.h"

#include <charconv>
#include <cstdio>

#include "tegula/base/str.h"

namespace tegula::cuda {

namespace {
constexpr std::string_view kMagic = "tegula-cubin-1";
}

uint64_t fnv1a(std::string_view text, uint64_t seed) {
  for (const unsigned char c : text) seed = (seed ^ c) * 0x100000001b3;
  return seed;
}

std::string hex(uint64_t x) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(x));
  return text;
}

std::string entry_text(const CacheEntry& e) {
  return cat(kMagic, " ", e.registers, " ", e.spill_bytes, " ", int{e.is_serialized}, " ",
             e.cubin.size(), " ", hex(fnv1a(e.cubin)), "\n") +
         e.cubin;
}

bool parse_entry(std::string_view text, CacheEntry& out) {
  const size_t end = text.find('\n');
  if (end == text.npos || !text.starts_with(kMagic)) return false;
  CacheEntry e;
  int numbers[3] = {};
  const char *at = text.data() + kMagic.size(), *last = text.data() + end;
  for (int& n : numbers) {
    if (at == last || *at++ != ' ') return false;
    const auto [next, error] = std::from_chars(at, last, n);
    if (error != std::errc() || n < 0) return false;
    at = next;
  }
  e.registers = numbers[0], e.spill_bytes = numbers[1], e.is_serialized = numbers[2] != 0;
  e.cubin = text.substr(end + 1);
  if (entry_text(e) != text) return false;  // size, checksum and spelling
  out = std::move(e);
  return true;
}

}  // namespace tegula::cuda
