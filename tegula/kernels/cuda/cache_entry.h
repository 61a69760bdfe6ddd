// An entry of the kernel cache as text: a line that says what it is, and the cubin. Needs no CUDA.
//
//   tegula-cubin-1 REGISTERS SPILL_BYTES IS_SERIALIZED SIZE CHECKSUM\n
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tegula::cuda {

struct CacheEntry {
  std::string cubin;
  int registers = 0;
  int spill_bytes = 0;
  bool is_serialized = false;
};

// FNV-1a, from a seed.
uint64_t fnv1a(std::string_view text, uint64_t seed = 0xcbf29ce484222325);
// 16 digits.
std::string hex(uint64_t x);

std::string entry_text(const CacheEntry& entry);
// False, with `out` as it was, unless the text is an entry to the byte: no other spelling of its
// numbers, nothing missing, nothing after it.
bool parse_entry(std::string_view text, CacheEntry& out);

}  // namespace tegula::cuda
