// Classes of Unicode code points, as the pre-tokeniser needs them: letter, number, space, other.
//
// Letters are the categories L*, numbers N*, spaces the property White_Space. Unicode 16.0, as in
// the `tokenizers` library (compared with it at every code point).
// Cost: a table look-up for ASCII, else two binary searches.
#pragma once

#include <cstdint>

namespace tegula {

enum class CharClass : uint8_t { kOther, kLetter, kNumber, kSpace };

namespace unicode {
extern const char32_t kLetterBoundaries[];
extern const char32_t kNumberBoundaries[];
extern const int kNumLetterBoundaries;
extern const int kNumNumberBoundaries;
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

}  // namespace tegula
