#include "tegula/text/charsmap.h"

#include <cstring>

namespace tegula {

Result<Charsmap> Charsmap::read(std::string bytes) {
  uint32_t n = 0;
  if (bytes.size() >= sizeof n) std::memcpy(&n, bytes.data(), sizeof n);
  if (bytes.size() < sizeof n || n % 4 != 0 || n > bytes.size() - sizeof n)
    return invalid_argument(cat("its charsmap of ", bytes.size(), " bytes says that its trie has ",
                                n, ": it is cut short"));
  Charsmap c;
  c.units_.resize(n / 4);
  std::memcpy(c.units_.data(), bytes.data() + sizeof n, n);
  c.texts_ = bytes.substr(sizeof n + n);
  c.texts_ += '\0';
  return c;
}

// A unit: bit 31 a value, else its label in bits 0 to 7 and 31, bit 8 that a value follows, bit 9
// that the offset counts 256, bits 10 to 30 the offset.
Charsmap::Match Charsmap::find(std::string_view text, bool is_shortest) const {
  const auto offset = [](uint32_t unit) { return unit >> 10 << ((unit & 0x200) >> 6); };
  Match found;
  if (units_.empty()) return found;
  uint32_t at = offset(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    at ^= byte;
    if (at >= units_.size()) break;
    const uint32_t unit = units_[at];
    if ((unit & 0x800000ff) != byte) break;
    at ^= offset(unit);
    if ((unit & 0x100) == 0) continue;
    if (at >= units_.size()) break;
    const uint32_t value = units_[at] & 0x7fffffff;
    if (value >= texts_.size()) continue;
    found = {i + 1, std::string_view(texts_.c_str() + value)};
    if (is_shortest) break;
  }
  return found;
}

Result<std::string> from_base64(std::string_view text) {
  std::string out;
  uint32_t bits = 0;
  int n_bits = 0;
  while (text.ends_with('=')) text.remove_suffix(1);
  for (const char c : text) {
    const int value = c >= 'A' && c <= 'Z'   ? c - 'A'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 26
                      : c >= '0' && c <= '9' ? c - '0' + 52
                      : c == '+'             ? 62
                      : c == '/'             ? 63
                                             : -1;
    if (value < 0) return invalid_argument("its precompiled_charsmap is no base64");
    bits = bits << 6 | static_cast<uint32_t>(value);
    if ((n_bits += 6) < 8) continue;
    n_bits -= 8;
    out += static_cast<char>(bits >> n_bits & 0xff);
  }
  return out;
}

}  // namespace tegula
