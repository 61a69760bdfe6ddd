#include "tegula/io/pretokenize.h"

#include "tegula/io/unicode.h"
#include "tegula/io/utf8.h"

namespace tegula {
namespace {

struct Char {
  CharClass kind;
  uint32_t n_bytes;
};

inline Char char_at(std::string_view text, size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x80) return {ascii_class(byte), 1};
  const CodePoint c = first_code_point(text.substr(at));
  return {c.is_valid ? char_class(c.value) : CharClass::kOther, c.n_bytes};
}

// The end of the run of characters of class `kind` that begins at `at`.
size_t run_end(std::string_view text, size_t at, CharClass kind) {
  while (at < text.size()) {
    const Char c = char_at(text, at);
    if (c.kind != kind) break;
    at += c.n_bytes;
  }
  return at;
}

// The length of an English contraction at the beginning, or 0.
size_t contraction(std::string_view text) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  switch (text[1]) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return text.size() > 2 && text[2] == 'e' ? 3 : 0;
    case 'l':
      return text.size() > 2 && text[2] == 'l' ? 3 : 0;
    default:
      return 0;
  }
}

}  // namespace

size_t first_word(std::string_view text) {
  if (const size_t n = contraction(text); n > 0) return n;
  const Char first = char_at(text, 0);
  if (first.kind != CharClass::kSpace) return run_end(text, first.n_bytes, first.kind);
  if (text[0] == ' ' && text.size() > 1) {
    const Char second = char_at(text, 1);
    if (second.kind != CharClass::kSpace) return run_end(text, 1 + second.n_bytes, second.kind);
  }
  // A run of spaces leaves its last one to what follows it, unless it is alone.
  size_t end = first.n_bytes, before_last = 0;
  while (end < text.size()) {
    const Char c = char_at(text, end);
    if (c.kind != CharClass::kSpace) return before_last > 0 ? before_last : end;
    before_last = end;
    end += c.n_bytes;
  }
  return end;
}

}  // namespace tegula
