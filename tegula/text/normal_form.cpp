#include "tegula/text/normal_form.h"

#include <unordered_map>

#include "tegula/base/algorithm.h"
#include "tegula/io/utf8.h"
#include "tegula/text/unicode_runs.h"

namespace tegula {
namespace {

using Mapping = std::unordered_map<char32_t, std::u32string>;

// Hangul syllables are composed by arithmetic (Unicode, section 3.12).
constexpr char32_t kSyllables = 0xac00, kLeads = 0x1100, kVowels = 0x1161, kTails = 0x11a7;
constexpr char32_t kNumLeads = 19, kNumVowels = 21, kNumTails = 28;
constexpr char32_t kNumSyllables = kNumLeads * kNumVowels * kNumTails;

struct Tables {
  Mapping canonical, compatible, lower;
  std::unordered_map<uint64_t, char32_t> composed;  // by first << 32 | second
  std::unordered_map<char32_t, uint8_t> combining_class;

  Tables() {
    const auto read = [](const char* entries, Mapping& into) {
      unicode::for_each_mapping(
          entries, [&](char32_t c, std::string_view to) { into.emplace(c, to_code_points(to)); });
    };
    read(unicode::kCanonicalBothWays, canonical);
    for (const auto& [c, to] : canonical) composed.emplace(uint64_t{to[0]} << 32 | to[1], c);
    read(unicode::kCanonicalOneWay, canonical);
    read(unicode::kCompatible, compatible);
    read(unicode::kLowercase, lower);
    unicode::for_each_run(unicode::kCombiningClassRuns, [&](char32_t first, size_t n, int value) {
      for (char32_t c = first; value > 0 && c < first + n; ++c)
        combining_class.emplace(c, unicode::kCombiningClasses[value]);
    });
  }
};

const Tables& tables() {
  static const Tables all;
  return all;
}

uint8_t combining_class(char32_t c) {
  if (c < 0x300) return 0;
  const auto at = tables().combining_class.find(c);
  return at != tables().combining_class.end() ? at->second : 0;
}

// The decomposition of the last character of `out`, in its place, until none is left.
void decompose(char32_t c, bool by_compatibility, std::u32string& out) {
  if (c < 0xa0) {
    out += c;
    return;
  }
  if (c >= kSyllables && c < kSyllables + kNumSyllables) {
    const char32_t s = c - kSyllables, tail = s % kNumTails;
    out += kLeads + s / (kNumVowels * kNumTails);
    out += kVowels + s % (kNumVowels * kNumTails) / kNumTails;
    if (tail > 0) out += kTails + tail;
    return;
  }
  const Tables& t = tables();
  if (by_compatibility)
    if (const auto at = t.compatible.find(c); at != t.compatible.end()) {
      out += at->second;
      return;
    }
  const auto at = t.canonical.find(c);
  if (at == t.canonical.end())
    out += c;
  else
    for (const char32_t part : at->second) decompose(part, by_compatibility, out);
}

// Marks stand in the order of their classes, those of equal class as they stood.
void sort_marks(std::u32string& text) {
  for (size_t at = 0; at < text.size(); ++at) {
    if (combining_class(text[at]) == 0) continue;
    size_t end = at + 1;
    while (end < text.size() && combining_class(text[end]) != 0) ++end;
    std::stable_sort(
        text.begin() + static_cast<ptrdiff_t>(at), text.begin() + static_cast<ptrdiff_t>(end),
        [](char32_t a, char32_t b) { return combining_class(a) < combining_class(b); });
    at = end;
  }
}

// The character that two compose to, or 0.
char32_t compose_pair(char32_t first, char32_t second) {
  if (first >= kLeads && first < kLeads + kNumLeads)
    return second >= kVowels && second < kVowels + kNumVowels
               ? kSyllables + ((first - kLeads) * kNumVowels + (second - kVowels)) * kNumTails
               : 0;
  if (first >= kSyllables && first < kSyllables + kNumSyllables)
    return (first - kSyllables) % kNumTails == 0 && second > kTails && second < kTails + kNumTails
               ? first + (second - kTails)
               : 0;
  const auto at = tables().composed.find(uint64_t{first} << 32 | second);
  return at != tables().composed.end() ? at->second : 0;
}

// A mark joins the last starter unless one of its own class or a higher one stands between.
void compose(std::u32string& text) {
  size_t out = 0, starter = SIZE_MAX;
  int last_class = -1;  // of what stands behind the starter; -1: nothing
  for (const char32_t c : text) {
    const uint8_t of = combining_class(c);
    if (starter != SIZE_MAX && last_class < of && c >= 0x300)
      if (const char32_t both = compose_pair(text[starter], c); both != 0) {
        text[starter] = both;
        continue;
      }
    if (of == 0) starter = out;
    last_class = of == 0 ? -1 : of;
    text[out++] = c;
  }
  text.resize(out);
}

}  // namespace

std::u32string normal_form(std::u32string_view text, NormalForm form) {
  const bool by_compatibility = form == NormalForm::kNfkd || form == NormalForm::kNfkc;
  std::u32string out;
  out.reserve(text.size());
  for (const char32_t c : text) decompose(c, by_compatibility, out);
  sort_marks(out);
  if (form == NormalForm::kNfc || form == NormalForm::kNfkc) compose(out);
  return out;
}

std::u32string lower_case(std::u32string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (const char32_t c : text) {
    if (c < 0x80) {
      out += c >= 'A' && c <= 'Z' ? c + 32 : c;
      continue;
    }
    const auto at = tables().lower.find(c);
    if (at == tables().lower.end())
      out += c;
    else
      out += at->second;
  }
  return out;
}

std::u32string to_code_points(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = first_code_point(text.substr(at));
    out += c.is_valid ? c.value : 0x110000 + c.value;
    at += c.n_bytes;
  }
  return out;
}

std::string to_utf8(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : text) {
    if (c < 0x110000)
      append_utf8(out, c);
    else
      out += static_cast<char>(c - 0x110000);
  }
  return out;
}

}  // namespace tegula
