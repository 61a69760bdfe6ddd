// What is known of a Unicode code point: its general category, and classes made of categories.
//
// Categories are Unicode 16.0's, spaces the property White_Space, as the patterns of the
// `tokenizers` library have it. Other parts of that library know older versions: is_mark(),
// is_nonspacing_mark(), is_control(), is_punctuation() and is_number() say what its normalisers and
// rules take a character for. All are compared with the library at every code point. Cost: a table
// look-up; the table of categories (1 MB) is made when a character beyond ASCII first asks for it.
#pragma once

#include <cstdint>

namespace tegula {

// In this order: see CATEGORIES in tools/unicode_tables.py.
enum class Category : uint8_t {
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMn,
  kMc,
  kMe,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPs,
  kPe,
  kPi,
  kPf,
  kPo,
  kSm,
  kSc,
  kSk,
  kSo,
  kZs,
  kZl,
  kZp,
  kCc,
  kCf,
  kCs,
  kCo,
  kCn
};
// "Lu", "Ll", …
inline constexpr char kCategoryNames[30][3] = {
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe",
    "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"};

// Of code points up to U+10FFFF; kCn beyond.
Category category(char32_t c);

// Letters are the categories L*, numbers N*.
enum class CharClass : uint8_t { kOther, kLetter, kNumber, kSpace };

namespace unicode {
CharClass class_beyond_ascii(char32_t c);
}  // namespace unicode

constexpr CharClass ascii_class(char32_t c) {
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return CharClass::kLetter;
  if (c >= '0' && c <= '9') return CharClass::kNumber;
  if (c == ' ' || (c >= 9 && c <= 13)) return CharClass::kSpace;
  return CharClass::kOther;
}

inline CharClass char_class(char32_t c) {
  return c < 0x80 ? ascii_class(c) : unicode::class_beyond_ascii(c);
}

bool is_mark(char32_t c);             // for StripAccents
bool is_nonspacing_mark(char32_t c);  // for BertNormalizer
bool is_control(char32_t c);      // for BertNormalizer; U+0000 and U+FFFD, but no tab or line break
bool is_punctuation(char32_t c);  // for BertPreTokenizer and Punctuation
bool is_number(char32_t c);       // for Digits

}  // namespace tegula
