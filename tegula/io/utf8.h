// UTF-8: one code point at a time, strictly (no overlong forms, no surrogates, ≤ U+10FFFF).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tegula {

struct CodePoint {
  char32_t value = 0;  // of an invalid sequence: its first byte
  uint32_t n_bytes = 1;
  bool is_valid = false;
};

// The first code point of `text`, which is not empty. An invalid sequence is one byte long.
inline CodePoint first_code_point(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto is_tail = [&](size_t i) { return i < text.size() && (byte(i) & 0xc0) == 0x80; };
  const char32_t b = byte(0);
  if (b < 0x80) return {b, 1, true};
  if (b >= 0xc2 && b < 0xe0 && is_tail(1)) return {(b & 31) << 6 | (byte(1) & 63u), 2, true};
  if (b >= 0xe0 && b < 0xf0 && is_tail(1) && is_tail(2)) {
    const char32_t v = (b & 15) << 12 | (byte(1) & 63u) << 6 | (byte(2) & 63u);
    if (v >= 0x800 && (v < 0xd800 || v > 0xdfff)) return {v, 3, true};
  }
  if (b >= 0xf0 && b < 0xf5 && is_tail(1) && is_tail(2) && is_tail(3)) {
    const char32_t v =
        (b & 7) << 18 | (byte(1) & 63u) << 12 | (byte(2) & 63u) << 6 | (byte(3) & 63u);
    if (v >= 0x10000 && v <= 0x10ffff) return {v, 4, true};
  }
  return {b, 1, false};
}

inline void append_utf8(std::string& out, char32_t c) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xc0 | c >> 6), put(0x80 | (c & 63));
  } else if (c < 0x10000) {
    put(0xe0 | c >> 12), put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63));
  } else {
    put(0xf0 | c >> 18), put(0x80 | (c >> 12 & 63));
    put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63));
  }
}

inline bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = first_code_point(text.substr(at));
    if (!c.is_valid) return false;
    at += c.n_bytes;
  }
  return true;
}

// How many bytes of `text` can be shown already, when more may follow: all but a sequence at the
// end that is cut short. For text that arrives token by token.
inline size_t showable_bytes(std::string_view text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto b = static_cast<unsigned char>(text[text.size() - back]);
    if ((b & 0xc0) == 0x80) continue;
    const size_t length = b >= 0xf0 ? 4 : b >= 0xe0 ? 3 : b >= 0xc0 ? 2 : 1;
    return length > back ? text.size() - back : text.size();
  }
  return text.size();
}

}  // namespace tegula
