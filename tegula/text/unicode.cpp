#include "tegula/text/unicode.h"

#include <vector>

#include "tegula/base/algorithm.h"
#include "tegula/text/unicode_runs.h"

namespace tegula {
namespace {

const std::vector<uint8_t>& categories() {
  static const std::vector<uint8_t> all = [] {
    std::vector<uint8_t> of(0x110000);
    unicode::for_each_run(unicode::kCategoryRuns, [&](char32_t first, size_t n, int symbol) {
      std::fill_n(of.begin() + first, n, static_cast<uint8_t>(symbol));
    });
    return of;
  }();
  return all;
}

// An odd number of boundaries at or below c: inside.
bool is_inside(const char32_t* boundaries, char32_t c) {
  const char32_t* end = boundaries;
  while (*end < 0x110000) ++end;
  return (std::upper_bound(boundaries, end, c) - boundaries) % 2 == 1;
}

bool is_between(Category c, Category first, Category last) { return first <= c && c <= last; }

}  // namespace

Category category(char32_t c) {
  return c < 0x110000 ? static_cast<Category>(categories()[c]) : Category::kCn;
}

CharClass unicode::class_beyond_ascii(char32_t c) {
  const Category of = category(c);
  if (is_between(of, Category::kLu, Category::kLo)) return CharClass::kLetter;
  if (is_between(of, Category::kNd, Category::kNo)) return CharClass::kNumber;
  const bool is_space = is_between(of, Category::kZs, Category::kZp) || c == 0x85;
  return is_space ? CharClass::kSpace : CharClass::kOther;
}

bool is_mark(char32_t c) {
  return c >= 0x80 && is_between(category(c), Category::kMn, Category::kMe) !=
                          is_inside(unicode::kMarksDiffer, c);
}

bool is_nonspacing_mark(char32_t c) {
  return c >= 0x80 && (category(c) == Category::kMn) != is_inside(unicode::kNonspacingDiffer, c);
}

bool is_control(char32_t c) {
  const Category of = category(c);
  return (of == Category::kCc || of == Category::kCf || of == Category::kCo) !=
         is_inside(unicode::kControlDiffer, c);
}

bool is_punctuation(char32_t c) {
  return is_between(category(c), Category::kPc, Category::kPo) !=
         is_inside(unicode::kPunctuationDiffer, c);
}

bool is_number(char32_t c) {
  return (char_class(c) == CharClass::kNumber) != is_inside(unicode::kNumbersDiffer, c);
}

}  // namespace tegula
