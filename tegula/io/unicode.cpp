#include "tegula/io/unicode.h"

#include "tegula/base/algorithm.h"

namespace tegula::unicode {

CharClass class_beyond_ascii(char32_t c) {
  // An odd number of boundaries at or below c: inside.
  const auto is_inside = [c](const char32_t* boundaries, int n) {
    return (std::upper_bound(boundaries, boundaries + n, c) - boundaries) % 2 == 1;
  };
  if (is_inside(kLetterBoundaries, kNumLetterBoundaries)) return CharClass::kLetter;
  if (is_inside(kNumberBoundaries, kNumNumberBoundaries)) return CharClass::kNumber;
  const bool is_space = c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
                        c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
  return is_space ? CharClass::kSpace : CharClass::kOther;
}

}  // namespace tegula::unicode
