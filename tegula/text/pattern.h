// Pattern: the regular expressions that tokenizers cut words with, matched in linear time.
//
// Read are alternatives, sets of characters ([^\r\n\p{L}], \s, \d, \p{Lu}, .), groups ((…), (?:…),
// (?i:…) for ASCII letters), greedy and possessive repetition of one character (?, *, +, {m,n}),
// optional groups, (?=…), (?!…), and ends of lines (^, $): as Oniguruma with Ruby's syntax reads
// them, which is what the `tokenizers` library uses. The leftmost match wins, and at a place the
// first alternative that fits. A byte that is not UTF-8 is a character of no category. How: a graph
// of nodes is walked with backtracking. Where the repetition of a set has failed with all that may
// follow it, that is remembered for its run, so that no place is tried twice by it. Errors:
// kUnsupported with the construct's name and place; also for what matches the empty text. Cost:
// linear in the text, times the nodes; about 100 MB/s for the patterns of published models.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "tegula/base/result.h"

namespace tegula {

// A set of code points: those of its parts, or all others.
class CharSet {
 public:
  void add(char32_t first, char32_t last);
  void add_categories(uint32_t mask);  // bit i: Category i
  void add_spaces(bool is_negated);
  // Categories and their complement: \P{L}.
  void add_complement(uint32_t mask);
  void add_other_case();  // of ASCII letters
  void negate() { is_negated_ = !is_negated_; }
  void finish();  // before contains()
  bool contains(char32_t c) const { return c < 128 ? ascii_[c] : holds(c); }
  bool is_only_ascii() const;  // and has no categories

 private:
  bool holds(char32_t c) const;
  std::vector<std::pair<char32_t, char32_t>> ranges_;
  uint32_t mask_ = 0;
  bool has_spaces_ = false, has_non_spaces_ = false, is_negated_ = false;
  std::array<bool, 128> ascii_{};
};

class Pattern {
 public:
  static Result<Pattern> compile(std::string_view regex);

  struct Match {
    size_t begin = 0, end = 0;  // begin == the text's size: none
  };
  // Finds matches in one text, from left to right.
  class Finder {
   public:
    Finder(const Pattern& pattern, std::string_view text);
    Match find(size_t from);

   private:
    // The places in the run of a set from `run_begin` to `run_end` at and behind `failed_from` do
    // not go on to a match.
    struct Memo {
      size_t run_begin = 0, run_end = 0, failed_from = SIZE_MAX;
    };
    size_t match(size_t node, size_t at);
    size_t repeat(size_t node, size_t at);
    const Pattern& pattern_;
    std::string_view text_;
    std::array<Memo, 24> memos_;  // of the first loops; more of them have none
  };

 private:
  friend class PatternCompiler;
  enum class Kind : uint8_t {
    kAccept,
    kOne,
    kLoop,
    kChoice,
    kAhead,
    kNotAhead,
    kLineBegin,
    kLineEnd
  };
  struct Node {
    Kind kind = Kind::kAccept;
    bool is_possessive = false;
    uint32_t set = 0;
    uint32_t min = 1, max = 1;
    size_t next = 0, inner = 0;     // inner: of a look-ahead
    std::vector<size_t> choices{};  // in their order
    uint32_t loop = 0;              // its memo
    std::array<bool, 128> may_begin{};
  };
  std::vector<CharSet> sets_;
  std::vector<Node> nodes_;
  size_t start_ = 0;
};

}  // namespace tegula
