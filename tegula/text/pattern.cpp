#include "tegula/text/pattern.h"

#include "tegula/base/algorithm.h"
#include "tegula/io/utf8.h"
#include "tegula/text/unicode.h"

namespace tegula {
namespace {

constexpr size_t kNone = SIZE_MAX;
constexpr char32_t kInvalid = 0x110000;  // and above: bytes that are not UTF-8

struct Char {
  char32_t value;
  uint32_t n_bytes;
};

inline Char char_at(std::string_view text, size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x80) return {byte, 1};
  const CodePoint c = first_code_point(text.substr(at));
  return {c.is_valid ? c.value : kInvalid + c.value, c.n_bytes};
}

// Where the character that ends at `at` begins, no earlier than `least`.
size_t char_before(std::string_view text, size_t at, size_t least) {
  for (size_t n = 4; n > 1; --n)
    if (at - least >= n && (static_cast<unsigned char>(text[at - n]) & 0xc0) == 0xc0) {
      const CodePoint c = first_code_point(text.substr(at - n));
      if (c.is_valid && c.n_bytes == n) return at - n;
    }
  return at - 1;
}

bool is_space(char32_t c) { return c < kInvalid && char_class(c) == CharClass::kSpace; }

}  // namespace

void CharSet::add(char32_t first, char32_t last) { ranges_.push_back({first, last}); }
void CharSet::add_categories(uint32_t mask) { mask_ |= mask; }
void CharSet::add_complement(uint32_t mask) { mask_ |= ~mask; }
void CharSet::add_spaces(bool is_negated) { (is_negated ? has_non_spaces_ : has_spaces_) = true; }

void CharSet::add_other_case() {
  const auto ranges = ranges_;
  for (const auto& [first, last] : ranges)
    for (char32_t c = first; c <= last; ++c) {
      const char32_t lower = c | 0x20;
      if (lower < 'a' || lower > 'z') continue;
      add(c ^ 0x20, c ^ 0x20);
      if (lower == 's') add(0x17f, 0x17f);
      if (lower == 'k') add(0x212a, 0x212a);
    }
}

bool CharSet::is_only_ascii() const {
  return mask_ == 0 && !has_spaces_ && !has_non_spaces_ && !is_negated_ &&
         std::all_of(ranges_.begin(), ranges_.end(), [](const auto& r) { return r.second < 128; });
}

void CharSet::finish() {
  std::sort(ranges_.begin(), ranges_.end());
  for (size_t i = 1; i < ranges_.size(); ++i)  // ends are made to ascend, too
    ranges_[i].second = std::max(ranges_[i].second, ranges_[i - 1].second);
  for (char32_t c = 0; c < ascii_.size(); ++c) ascii_[c] = holds(c);
}

bool CharSet::holds(char32_t c) const {
  bool is_in = false;
  if (mask_ != 0) is_in = (mask_ >> static_cast<int>(category(c)) & 1) != 0;
  if (!is_in && (has_spaces_ || has_non_spaces_))
    is_in = is_space(c) ? has_spaces_ : has_non_spaces_;
  if (!is_in && !ranges_.empty()) {
    // The last range that begins at or before c; an earlier, longer one has given it its end only
    // where c lies in that one.
    const auto at =
        std::upper_bound(ranges_.begin(), ranges_.end(), c,
                         [](char32_t value, const auto& range) { return value < range.first; });
    is_in = at != ranges_.begin() && c <= std::prev(at)->second;
  }
  return is_in != is_negated_;
}

Pattern::Finder::Finder(const Pattern& pattern, std::string_view text)
    : pattern_(pattern), text_(text) {}

Pattern::Match Pattern::Finder::find(size_t from) {
  const auto& may_begin = pattern_.nodes_[pattern_.start_].may_begin;
  while (from < text_.size()) {
    const auto byte = static_cast<unsigned char>(text_[from]);
    if (byte >= 128 || may_begin[byte])
      if (const size_t end = match(pattern_.start_, from); end != kNone) return {from, end};
    from += char_at(text_, from).n_bytes;
  }
  return {text_.size(), text_.size()};
}

size_t Pattern::Finder::match(size_t node, size_t at) {
  while (true) {
    const Node& n = pattern_.nodes_[node];
    if (at < text_.size()) {
      const auto byte = static_cast<unsigned char>(text_[at]);
      if (byte < 128 && !n.may_begin[byte]) return kNone;
    }
    switch (n.kind) {
      case Kind::kAccept:
        return at;
      case Kind::kOne: {
        if (at == text_.size()) return kNone;
        const Char c = char_at(text_, at);
        if (!pattern_.sets_[n.set].contains(c.value)) return kNone;
        at += c.n_bytes;
        break;
      }
      case Kind::kLoop:
        return repeat(node, at);
      case Kind::kChoice:
        for (const size_t choice : n.choices)
          if (const size_t end = match(choice, at); end != kNone) return end;
        return kNone;
      case Kind::kAhead:
      case Kind::kNotAhead:
        if ((match(n.inner, at) != kNone) != (n.kind == Kind::kAhead)) return kNone;
        break;
      case Kind::kLineBegin:
        if (at > 0 && text_[at - 1] != '\n') return kNone;
        break;
      case Kind::kLineEnd:
        if (at < text_.size() && text_[at] != '\n') return kNone;
        break;
    }
    node = n.next;
  }
}

size_t Pattern::Finder::repeat(size_t node, size_t at) {
  const Node& n = pattern_.nodes_[node];
  const CharSet& set = pattern_.sets_[n.set];
  Memo none;
  Memo& memo = n.max == UINT32_MAX && n.loop < memos_.size() ? memos_[n.loop] : none;
  size_t least = n.min == 0 ? at : kNone, end = at;
  bool is_known = false;  // the run is the memo's
  for (uint32_t count = 0; count < n.max && end < text_.size(); ++count) {
    is_known = memo.failed_from != SIZE_MAX && memo.run_begin <= end && end <= memo.run_end;
    if (is_known && count >= n.min) break;
    const Char c = char_at(text_, end);
    if (!set.contains(c.value)) break;
    end += c.n_bytes;
    if (count + 1 == n.min) least = end;
  }
  if (least == kNone) return kNone;
  is_known = memo.failed_from != SIZE_MAX && memo.run_begin <= end && end <= memo.run_end;
  if (n.is_possessive) return match(n.next, end);
  size_t to = end;
  if (is_known) {  // from failed_from on nothing goes on; before it may
    if (memo.failed_from <= least) return kNone;
    to = char_before(text_, memo.failed_from, least);
  }
  for (size_t place = to;; place = char_before(text_, place, least)) {
    if (const size_t found = match(n.next, place); found != kNone) return found;
    if (place <= least) break;
  }
  if (is_known)
    memo.run_begin = std::min(memo.run_begin, at), memo.failed_from = least;
  else
    memo = {at, end, least};
  return kNone;
}

}  // namespace tegula
