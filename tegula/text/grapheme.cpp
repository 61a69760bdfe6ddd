#include "tegula/text/grapheme.h"

#include <iterator>

#include "tegula/base/range.h"
#include "tegula/io/utf8.h"
#include "tegula/text/unicode.h"

namespace tegula {
namespace {

using Range = char32_t[2];

template <size_t N>
bool is_in(char32_t c, const Range (&ranges)[N]) {
  return any_of(ranges, [c](const Range& r) { return r[0] <= c && c <= r[1]; });
}

bool is_prepend(char32_t c) {
  constexpr Range kRanges[] = {{0x600, 0x605},     {0x6dd, 0x6dd},     {0x70f, 0x70f},
                               {0x890, 0x891},     {0x8e2, 0x8e2},     {0xd4e, 0xd4e},
                               {0x110bd, 0x110bd}, {0x110cd, 0x110cd}, {0x111c2, 0x111c3},
                               {0x113d1, 0x113d1}, {0x1193f, 0x1193f}, {0x11941, 0x11941},
                               {0x11a84, 0x11a89}, {0x11d46, 0x11d46}, {0x11f02, 0x11f02}};
  return c >= 0x600 && is_in(c, kRanges);
}

// Extend, ZWJ and SpacingMark: what belongs to the character before it.
bool continues(char32_t c) {
  if (c < 0x300) return false;
  // The last ones are of Unicode 17, whose categories are not here yet.
  constexpr Range kOthers[] = {{0x200c, 0x200d},   {0xe33, 0xe33},     {0xeb3, 0xeb3},
                               {0xff9e, 0xff9f},   {0x1f3fb, 0x1f3ff}, {0xe0020, 0xe007f},
                               {0x1acf, 0x1add},   {0x1ae0, 0x1aeb},   {0x10efa, 0x10efb},
                               {0x11b60, 0x11b67}, {0x1e6e3, 0x1e6e3}, {0x1e6e6, 0x1e6e6},
                               {0x1e6ee, 0x1e6ef}, {0x1e6f5, 0x1e6f5}};
  constexpr Range kApart[] = {
      {0x102b, 0x102c}, {0x1038, 0x1038}, {0x1062, 0x1064},  {0x1067, 0x106d}, {0x1083, 0x1083},
      {0x1087, 0x108c}, {0x108f, 0x108f}, {0x109a, 0x109c},  {0x1a61, 0x1a61}, {0x1a63, 0x1a64},
      {0xaa7b, 0xaa7b}, {0xaa7d, 0xaa7d}, {0x11720, 0x11721}};
  switch (category(c)) {
    case Category::kMn:
    case Category::kMe:
      return true;
    case Category::kMc:
      return !is_in(c, kApart);
    default:
      return is_in(c, kOthers);
  }
}

bool is_alone(char32_t c) {  // Control, CR, LF
  switch (category(c)) {
    case Category::kCc:
    case Category::kZl:
    case Category::kZp:
      return true;
    case Category::kCf:
      return !continues(c) && !is_prepend(c);
    case Category::kCn: {
      constexpr Range kIgnorable[] = {{0x2065, 0x2065}, {0xfff0, 0xfff8}, {0xe0000, 0xe0fff}};
      return is_in(c, kIgnorable);
    }
    default:
      return false;
  }
}

}  // namespace

size_t grapheme_bytes(std::string_view text) {
  CodePoint c = first_code_point(text);
  if (text.starts_with("\r\n")) return 2;
  if (!c.is_valid || is_alone(c.value)) return c.n_bytes;
  size_t n = c.n_bytes;
  while (n < text.size()) {
    const CodePoint next = first_code_point(text.substr(n));
    if (!next.is_valid || is_alone(next.value)) break;
    if (!continues(next.value) && !is_prepend(c.value)) break;
    n += next.n_bytes;
    c = next;
  }
  return n;
}

}  // namespace tegula
