#include "tegula/text/pretokenize.h"

#include <string>

#include "tegula/base/str.h"
#include "tegula/io/utf8.h"
#include "tegula/text/unicode.h"

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

bool is_line_break(char c) { return c == '\r' || c == '\n'; }

// As contraction(), in any case; U+017F is a long s.
size_t contraction_of_any_case(std::string_view text) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  std::string small = "'";
  size_t n_bytes = 1;
  for (; small.size() < 3 && n_bytes < text.size();) {
    const CodePoint c = first_code_point(text.substr(n_bytes));
    const char32_t lower = c.value >= 'A' && c.value <= 'Z' ? c.value + 32 : c.value;
    small += lower == 0x17f ? 's' : lower < 0x80 ? static_cast<char>(lower) : '?';
    n_bytes += c.n_bytes;
    if (small.size() == 2 && contraction(small) == 2) return n_bytes;
  }
  return contraction(small) == 3 ? n_bytes : 0;
}

// At the beginning of white space: with its last line break, or as in first_word.
size_t spaces(std::string_view text) {
  size_t end = 0, last = 0, behind_break = 0;
  while (end < text.size()) {
    const Char c = char_at(text, end);
    if (c.kind != CharClass::kSpace) break;
    last = end;
    end += c.n_bytes;
    if (is_line_break(text[last])) behind_break = end;
  }
  if (behind_break > 0) return behind_break;
  return end == text.size() || last == 0 ? end : last;
}

size_t first_word_with_digits(std::string_view text, int most_digits) {
  if (const size_t n = contraction_of_any_case(text); n > 0) return n;
  const Char first = char_at(text, 0);
  const bool has_second = first.n_bytes < text.size();
  const Char second = has_second ? char_at(text, first.n_bytes) : first;
  if (first.kind == CharClass::kLetter) return run_end(text, 0, CharClass::kLetter);
  if (first.kind == CharClass::kNumber) {
    size_t end = 0;
    for (int i = 0; i < most_digits && end < text.size(); ++i) {
      const Char c = char_at(text, end);
      if (c.kind != CharClass::kNumber) break;
      end += c.n_bytes;
    }
    return end;
  }
  if (has_second && second.kind == CharClass::kLetter && !is_line_break(text[0]))
    return run_end(text, first.n_bytes, CharClass::kLetter);
  const bool goes_with_others = first.kind == CharClass::kOther ||
                                (text[0] == ' ' && has_second && second.kind == CharClass::kOther);
  if (!goes_with_others) return spaces(text);
  size_t end = run_end(text, first.n_bytes, CharClass::kOther);
  while (end < text.size() && is_line_break(text[end])) ++end;
  return end;
}

constexpr WordRule kWordRules[] = {
    {"GPT-2", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
     first_word},
    {"Llama 3",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
     R"(\s*[\r\n]+|\s+(?!\S)|\s+)",
     first_word_llama3},
    {"Qwen",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
     R"(\s*[\r\n]+|\s+(?!\S)|\s+)",
     first_word_qwen}};

}  // namespace

size_t first_word_llama3(std::string_view text) { return first_word_with_digits(text, 3); }
size_t first_word_qwen(std::string_view text) { return first_word_with_digits(text, 1); }

const WordRule* find_word_rule(std::string_view pattern) {
  for (const WordRule& r : kWordRules)
    if (r.pattern == pattern) return &r;
  return nullptr;
}

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
