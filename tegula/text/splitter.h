// Splitter: cuts a text where a pattern matches, as Split of tokenizer.json does.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tegula/text/json_form.h"
#include "tegula/text/pattern.h"

namespace tegula {

// What is found in a text: a string as it is, or what a regular expression matches.
class TextPattern {
 public:
  // {"String": "▁"} or {"Regex": "\\s+"}; `name` is the part's that has it.
  static Result<TextPattern> read(const Json& part, std::string_view name);
  static TextPattern of(std::string text);

  class Finder {
   public:
    Finder(const TextPattern& pattern, std::string_view text);
    Pattern::Match find(size_t from);

   private:
    const TextPattern& pattern_;
    std::string_view text_;
    std::optional<Pattern::Finder> finder_;
  };

 private:
  std::string string_;
  std::shared_ptr<const Pattern> regex_;  // null: the string
};

enum class Behavior : uint8_t {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous
};
Result<Behavior> read_behavior(const std::string& name);

// Walks over the pieces of a text. `find(from)` gives the next match (begin == size: none); a match
// is a delimiter, or, inverted, what lies between two.
template <class Find, class Visit>
void for_each_piece(std::string_view text, Behavior behavior, bool is_inverted, Find find,
                    Visit visit) {
  struct Piece {
    size_t begin, end;
    bool is_delimiter;
  };
  Pattern::Match match{0, 0};
  bool is_found = false;
  const auto next_segment = [&](size_t from) -> Piece {
    if (!is_found || match.begin < from) match = find(from), is_found = true;
    if (match.begin > from) return {from, match.begin, is_inverted};
    return {from, match.end, !is_inverted};
  };
  const auto visit_if_kept = [&](const Piece& p) {
    if (p.end > p.begin && !(behavior == Behavior::kRemoved && p.is_delimiter))
      visit(text.substr(p.begin, p.end - p.begin));
  };
  Piece last{0, 0, false};
  bool is_open = false;  // the last piece may still grow
  for (size_t at = 0; at < text.size();) {
    const Piece p = next_segment(at);
    at = p.end;
    const bool joins =
        is_open &&
        (behavior == Behavior::kContiguous           ? p.is_delimiter == last.is_delimiter
         : behavior == Behavior::kMergedWithPrevious ? p.is_delimiter && !last.is_delimiter
         : behavior == Behavior::kMergedWithNext     ? !p.is_delimiter && last.is_delimiter
                                                     : false);
    if (joins) {
      last.end = p.end, last.is_delimiter = p.is_delimiter;
      continue;
    }
    if (is_open) visit_if_kept(last);
    last = p, is_open = true;
  }
  if (is_open) visit_if_kept(last);
}

}  // namespace tegula
