#include "tegula/text/splitter.h"

namespace tegula {

Result<TextPattern> TextPattern::read(const Json& part, std::string_view name) {
  const Json* pattern = part.find("pattern");
  if (pattern == nullptr) return invalid_argument(cat("its ", name, " has no pattern"));
  const std::string regex = text_of(pattern->find("Regex"));
  if (regex.empty()) {
    TextPattern p = of(text_of(pattern->find("String")));
    if (p.string_.empty()) return unsupported(cat("its ", name, " has an empty pattern"));
    return p;
  }
  TextPattern p;
  p.regex_ = std::make_shared<const Pattern>(TEGULA_TRY(Pattern::compile(regex)));
  return p;
}

TextPattern TextPattern::of(std::string text) {
  TextPattern p;
  p.string_ = std::move(text);
  return p;
}

TextPattern::Finder::Finder(const TextPattern& pattern, std::string_view text)
    : pattern_(pattern), text_(text) {
  if (pattern.regex_ != nullptr) finder_.emplace(*pattern.regex_, text);
}

Pattern::Match TextPattern::Finder::find(size_t from) {
  if (finder_) return finder_->find(from);
  const size_t at = text_.find(pattern_.string_, from);
  if (at == text_.npos) return {text_.size(), text_.size()};
  return {at, at + pattern_.string_.size()};
}

Result<Behavior> read_behavior(const std::string& name) {
  constexpr std::string_view kNames[] = {"Removed", "Isolated", "MergedWithPrevious",
                                         "MergedWithNext", "Contiguous"};
  for (uint8_t i = 0; i < 5; ++i)
    if (name == kNames[i]) return static_cast<Behavior>(i);
  return unsupported(cat("its pre_tokenizer splits with the behavior ", name));
}

}  // namespace tegula
