#include "tegula/text/words.h"

#include <span>

#include "tegula/io/utf8.h"
#include "tegula/text/splitter.h"
#include "tegula/text/unicode.h"

namespace tegula {
namespace {

using Steps = std::span<const std::shared_ptr<const WordStep>>;

// Hands pieces to the steps that follow, and what these leave to the last taker.
void cut_by(Steps steps, std::string_view text, WordSink& to) {
  if (steps.empty()) {
    to.take(text);
    return;
  }
  class Next : public WordSink {
   public:
    Next(Steps steps, WordSink& to) : steps_(steps), to_(to) {}
    void take(std::string_view word) override { cut_by(steps_, word, to_); }

   private:
    Steps steps_;
    WordSink& to_;
  } next(steps.subspan(1), to);
  steps[0]->cut(text, steps.size() == 1 ? to : next);
}

class RuleStep : public WordStep {
 public:
  explicit RuleStep(FirstWord rule) : rule_(rule) {}
  void cut(std::string_view text, WordSink& to) const override {
    while (!text.empty()) {
      const size_t n = rule_(text);
      to.take(text.substr(0, n));
      text.remove_prefix(n);
    }
  }

 private:
  FirstWord rule_;
};

class SplitStep : public WordStep {
 public:
  SplitStep(TextPattern pattern, Behavior behavior, bool is_inverted)
      : pattern_(std::move(pattern)), behavior_(behavior), is_inverted_(is_inverted) {}
  void cut(std::string_view text, WordSink& to) const override {
    TextPattern::Finder finder(pattern_, text);
    for_each_piece(
        text, behavior_, is_inverted_, [&](size_t from) { return finder.find(from); },
        [&](std::string_view piece) { to.take(piece); });
  }

 private:
  TextPattern pattern_;
  Behavior behavior_;
  bool is_inverted_;
};

// Splits at characters of a class.
class ClassStep : public WordStep {
 public:
  ClassStep(bool (*is_in)(char32_t), Behavior behavior) : is_in_(is_in), behavior_(behavior) {}
  void cut(std::string_view text, WordSink& to) const override {
    const auto find = [&](size_t from) -> Pattern::Match {
      while (from < text.size()) {
        const CodePoint c = first_code_point(text.substr(from));
        if (c.is_valid && is_in_(c.value)) return {from, from + c.n_bytes};
        from += c.n_bytes;
      }
      return {text.size(), text.size()};
    };
    for_each_piece(text, behavior_, false, find, [&](std::string_view piece) { to.take(piece); });
  }

 private:
  bool (*is_in_)(char32_t);
  Behavior behavior_;
};

bool is_space(char32_t c) { return char_class(c) == CharClass::kSpace; }

Result<std::shared_ptr<const WordStep>> read_split(const Json& json) {
  TEGULA_TRY(check_keys(json, "pre_tokenizer Split", {"pattern", "behavior", "invert"}));
  const Behavior behavior = TEGULA_TRY(read_behavior(text_of(json.find("behavior"))));
  const bool is_inverted = is_true(json.find("invert"));
  const Json* pattern = json.find("pattern");
  const WordRule* rule =
      pattern != nullptr ? find_word_rule(text_of(pattern->find("Regex"))) : nullptr;
  // Its pattern leaves nothing between two matches.
  const bool is_plain =
      is_inverted ? behavior == Behavior::kRemoved : behavior == Behavior::kIsolated;
  if (rule != nullptr && is_plain) return std::make_shared<const RuleStep>(rule->cut);
  return std::make_shared<const SplitStep>(
      TEGULA_TRY(TextPattern::read(json, "pre_tokenizer Split")), behavior, is_inverted);
}

}  // namespace

Words Words::by(FirstWord rule) {
  Words w;
  w.is_byte_level_ = true;
  if (rule != nullptr) w.steps_.push_back(std::make_shared<const RuleStep>(rule));
  return w;
}

Result<Words> Words::read(const Json* pre_tokenizer) {
  Words w;
  if (!is_absent(pre_tokenizer)) TEGULA_TRY(w.add(*pre_tokenizer));
  return w;
}

Status Words::add_byte_level(const Json& json) {
  TEGULA_TRY(check_keys(json, "pre_tokenizer ByteLevel",
                        {"add_prefix_space", "trim_offsets", "use_regex"}));
  if (is_true(json.find("add_prefix_space"))) {
    if (!steps_.empty() || !space_.empty())
      return unsupported("its pre_tokenizer ByteLevel adds a space in front of words");
    prefix_ = Prefix::kAlways;
  }
  is_byte_level_ = true;
  const Json* use_regex = json.find("use_regex");
  if (use_regex == nullptr || is_true(use_regex))
    steps_.push_back(std::make_shared<const RuleStep>(first_word));
  return {};
}

Status Words::add_metaspace(const Json& json) {
  constexpr std::string_view kName = "pre_tokenizer Metaspace";
  TEGULA_TRY(check_keys(json, kName,
                        {"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"}));
  if (!space_.empty() || prefix_ != Prefix::kNever)
    return unsupported("its pre_tokenizer puts spaces in front of words twice");
  before_ = std::move(steps_);
  steps_.clear();
  space_ = TEGULA_TRY(need_text(json, kName, "replacement"));
  if (space_.empty()) return invalid_argument("its pre_tokenizer Metaspace replaces by nothing");
  // Older files say add_prefix_space.
  const Json* older = json.find("add_prefix_space");
  const Json* scheme = json.find("prepend_scheme");
  const std::string says = scheme != nullptr                     ? text_of(scheme)
                           : older != nullptr && !is_true(older) ? "never"
                                                                 : "always";
  if (older != nullptr && is_true(older) == (says == "never"))
    return unsupported("its pre_tokenizer Metaspace contradicts itself on a space in front");
  if (says != "never" && says != "first" && says != "always")
    return unsupported(cat("its pre_tokenizer Metaspace has the prepend_scheme ", says));
  prefix_ = says == "never" ? Prefix::kNever : says == "first" ? Prefix::kFirst : Prefix::kAlways;
  const Json* split = json.find("split");
  if (split == nullptr || is_true(split))
    steps_.push_back(std::make_shared<const SplitStep>(TextPattern::of(space_),
                                                       Behavior::kMergedWithNext, false));
  return {};
}

Status Words::add(const Json& json) {
  const std::string type = text_of(json.find("type"));
  const std::string name = cat("pre_tokenizer ", type);
  if (is_byte_level_)  // which turns the words into other characters
    return unsupported(cat("its pre_tokenizer has ", type, " behind ByteLevel"));
  const auto put = [&](bool (*is_in)(char32_t), Behavior behavior) {
    steps_.push_back(std::make_shared<const ClassStep>(is_in, behavior));
  };
  if (type == "Sequence") {
    TEGULA_TRY(check_keys(json, name, {"pretokenizers"}));
    for (const Json& each : list_of(json.find("pretokenizers"))) TEGULA_TRY(add(each));
    return {};
  }
  if (type == "ByteLevel") return add_byte_level(json);
  if (type == "Metaspace") return add_metaspace(json);
  if (type == "Split") {
    steps_.push_back(TEGULA_TRY(read_split(json)));
    return {};
  }
  if (type == "Digits") {
    const Json* individual = json.find("individual_digits");
    put(is_number, is_true(individual) ? Behavior::kIsolated : Behavior::kContiguous);
    return check_keys(json, name, {"individual_digits"});
  }
  if (type == "Punctuation") {
    const Json* behavior = json.find("behavior");
    put(is_punctuation,
        behavior == nullptr ? Behavior::kIsolated : TEGULA_TRY(read_behavior(text_of(behavior))));
    return check_keys(json, name, {"behavior"});
  }
  if (type == "WhitespaceSplit" || type == "BertPreTokenizer") {
    put(is_space, Behavior::kRemoved);
    if (type == "BertPreTokenizer") put(is_punctuation, Behavior::kIsolated);
    return check_keys(json, name, {});
  }
  return unsupported(cat("its ", name, " is not a form that tegula reads"));
}

void Words::change(std::string_view text, bool puts, std::string& to) const {
  const std::string_view front = space_.empty() ? " " : std::string_view(space_);
  if (puts && !text.starts_with(front) && !text.starts_with(' ')) to += front;
  for (const char c : text)
    if (c == ' ')
      to += front;
    else
      to += c;
}

void Words::cut(std::string_view text, bool is_first, WordSink& to) const {
  if (text.empty()) return;
  const auto puts = [&](std::string_view piece) {
    return prefix_ == Prefix::kAlways ||
           (prefix_ == Prefix::kFirst && is_first && piece.data() == text.data());
  };
  if (space_.empty() && !(puts(text) && !text.starts_with(' '))) {
    cut_by(steps_, text, to);
    return;
  }
  // Words are taken from it until the end.
  std::string changed;
  std::vector<size_t> ends;
  changed.reserve(text.size() + text.size() / 4 + space_.size() + 1);
  struct Pieces : WordSink {
    explicit Pieces(std::vector<std::string_view>& all) : all(all) {}
    void take(std::string_view piece) override { all.push_back(piece); }
    std::vector<std::string_view>& all;
  };
  std::vector<std::string_view> pieces;
  Pieces sink(pieces);
  cut_by(before_, text, sink);
  for (const std::string_view piece : pieces) {
    change(piece, puts(piece), changed);
    ends.push_back(changed.size());
  }
  size_t begin = 0;
  for (const size_t end : ends) {
    cut_by(steps_, std::string_view(changed).substr(begin, end - begin), to);
    begin = end;
  }
}

}  // namespace tegula
