// Reads a regular expression into a tree, and makes the nodes of a Pattern of it, last ones first.

#include "tegula/base/algorithm.h"
#include "tegula/io/utf8.h"
#include "tegula/text/pattern.h"
#include "tegula/text/unicode.h"

namespace tegula {
namespace {

constexpr uint32_t kEndless = UINT32_MAX;
constexpr uint32_t kMostRepeats = 100;
constexpr size_t kMostNodes = 2000;
constexpr double kMostWays = 10'000;

// The categories that \p{…} names, as a mask; 0: none.
uint32_t category_mask(std::string_view name) {
  uint32_t mask = 0;
  for (uint32_t i = 0; i < std::size(kCategoryNames); ++i)
    if (!name.empty() && name.size() <= 2 && std::string_view(kCategoryNames[i]).starts_with(name))
      mask |= 1u << i;
  return mask;
}

struct Tree {
  enum class Kind { kSet, kSequence, kChoice, kAhead, kNotAhead, kLineBegin, kLineEnd };
  Kind kind = Kind::kSequence;
  CharSet set{};
  uint32_t min = 1, max = 1;  // how often; of sets and groups
  bool is_possessive = false;
  std::vector<Tree> parts{};
};

}  // namespace

class PatternCompiler {
 public:
  explicit PatternCompiler(std::string_view regex) : regex_(regex) {}

  Result<Pattern> run() {
    const Tree tree = TEGULA_TRY(read_choice());
    if (at_ < regex_.size()) return refuse("a ) that closes nothing");
    if (least_length(tree) == 0) return refuse("a pattern that matches the empty text");
    Pattern::Node accept;
    accept.may_begin.fill(true);
    pattern_.start_ = emit(tree, put(std::move(accept)));
    if (pattern_.nodes_.size() > kMostNodes) return refuse("a pattern of so many parts");
    if (ways_.back() > kMostWays) return refuse("a pattern that matches in so many ways");
    return std::move(pattern_);
  }

 private:
  Error refuse(std::string_view construct) const {
    return unsupported(cat("its pattern '", regex_, "' has ", construct, " at byte ", at_,
                           ", which tegula does not read"));
  }
  bool next_is(std::string_view text) const { return regex_.substr(at_).starts_with(text); }
  bool take(std::string_view text) {
    const bool is_next = next_is(text);
    if (is_next) at_ += text.size();
    return is_next;
  }

  Result<Tree> read_choice() {
    if (++depth_ > 50) return refuse("so deep a group");
    Tree choice{.kind = Tree::Kind::kChoice};
    do {
      Tree sequence;
      while (at_ < regex_.size() && !next_is("|") && !next_is(")")) {
        Tree item = TEGULA_TRY(read_item());
        TEGULA_TRY(read_repeats(item));
        sequence.parts.push_back(std::move(item));
      }
      choice.parts.push_back(std::move(sequence));
    } while (take("|"));
    --depth_;
    return choice;
  }

  Result<Tree> read_item() {
    if (take("(")) return read_group();
    if (take("^")) return Tree{.kind = Tree::Kind::kLineBegin};
    if (take("$")) return Tree{.kind = Tree::Kind::kLineEnd};
    Tree item{.kind = Tree::Kind::kSet};
    if (take("[")) {
      TEGULA_TRY(read_set(item.set));
    } else if (take(".")) {
      item.set.add('\n', '\n');
      item.set.negate();
    } else {
      if (next_is("*") || next_is("+") || next_is("?") || next_is("{"))
        return refuse("a repetition of nothing");
      TEGULA_TRY(read_char(item.set));
      if (ignores_case_) TEGULA_TRY(fold(item.set));
    }
    item.set.finish();
    return item;
  }

  Result<Tree> read_group() {
    const bool ignored_case = ignores_case_;
    Tree::Kind kind = Tree::Kind::kChoice;
    if (take("?=")) {
      kind = Tree::Kind::kAhead;
    } else if (take("?!")) {
      kind = Tree::Kind::kNotAhead;
    } else if (take("?i:")) {
      ignores_case_ = true;
    } else if (!take("?:") && next_is("?")) {
      return refuse(cat("the group (", regex_.substr(at_, 3), "…"));
    }
    Tree group = TEGULA_TRY(read_choice());
    if (!take(")")) return refuse("a group that does not end");
    ignores_case_ = ignored_case;
    if (kind == Tree::Kind::kChoice) return group;
    Tree ahead{.kind = kind};
    ahead.parts.push_back(std::move(group));
    return ahead;
  }

  Status read_repeats(Tree& item) {
    const size_t begin = at_;
    if (take("?")) {
      item.min = 0;
    } else if (take("*")) {
      item.min = 0, item.max = kEndless;
    } else if (take("+")) {
      item.max = kEndless;
    } else if (take("{")) {
      const bool has_least = read_number(item.min);
      item.max = item.min;
      if (take(",") && !read_number(item.max)) item.max = kEndless;
      if (!has_least && item.max == item.min) return refuse("{ as a character");
      if (!has_least) item.min = 0;
      if (!take("}") || item.min > item.max) return refuse("{ as a character");
      // {1,3}+ is, there, the repetition of a repetition.
      if (take("+")) {
        if (item.min > 1) return refuse("a repeated repetition");
        item.max = kEndless;
      }
    }
    if (at_ == begin) return {};
    if (regex_[at_ - 1] != '}' && regex_[begin] != '{') item.is_possessive = take("+");
    if (next_is("?") || next_is("*") || next_is("+")) return refuse("a lazy or double repetition");
    const bool is_group = item.kind == Tree::Kind::kChoice;
    if (item.kind != Tree::Kind::kSet && !is_group) return refuse("a repeated condition");
    if (is_group && (item.max != 1 || item.is_possessive)) return refuse("a repeated group");
    if (item.max == 0 || (item.max != kEndless && item.max > kMostRepeats) ||
        item.min > kMostRepeats)
      return refuse("so many repetitions");
    return {};
  }

  bool read_number(uint32_t& number) {
    const size_t begin = at_;
    uint32_t value = 0;
    for (; at_ < regex_.size() && regex_[at_] >= '0' && regex_[at_] <= '9'; ++at_)
      value = std::min(value * 10 + static_cast<uint32_t>(regex_[at_] - '0'), 1'000'000u);
    if (at_ > begin) number = value;
    return at_ > begin;
  }

  // Behind the [.
  Status read_set(CharSet& set) {
    const bool is_negated = take("^");
    bool is_first = true;
    while (is_first || !next_is("]")) {
      if (at_ >= regex_.size()) return refuse("a [ that does not end");
      if (next_is("[") || next_is("&&") || (is_first && next_is("]")))
        return refuse("a set within a set");
      is_first = false;
      CharSet one;
      const char32_t first = TEGULA_TRY(read_char(set));
      if (!next_is("-") || next_is("-]")) continue;
      take("-");
      if (at_ >= regex_.size() || next_is("[")) return refuse("a [ that does not end");
      const char32_t last = TEGULA_TRY(read_char(one));
      if (first == 0 || last == 0 || last < first) return refuse("a range without an end");
      set.add(first, last);
    }
    take("]");
    if (ignores_case_) TEGULA_TRY(fold(set));
    if (is_negated) set.negate();
    return {};
  }

  Status fold(CharSet& set) {
    if (!set.is_only_ascii()) return refuse("characters beyond ASCII in any case");
    set.add_other_case();
    return {};
  }

  // Adds what a character or an escape stands for; gives the character, or 0 for a class.
  Result<char32_t> read_char(CharSet& set) {
    const CodePoint c = first_code_point(regex_.substr(at_));
    if (!c.is_valid || c.value == 0) return refuse("a character that is not UTF-8");
    if (c.value != '\\') {
      at_ += c.n_bytes;
      set.add(c.value, c.value);
      return c.value;
    }
    if (at_ + 1 >= regex_.size()) return refuse("a \\ at its end");
    const char letter = regex_[at_ + 1];
    constexpr std::string_view kNamed = "nrtfv", kMeant = "\n\r\t\f\v";
    char32_t meant = static_cast<unsigned char>(letter);
    switch (letter) {
      case 'p':
      case 'P':
        return read_category(set, letter == 'P');
      case 's':
      case 'S':
        set.add_spaces(letter == 'S');
        break;
      case 'd':
      case 'D':
        letter == 'd' ? set.add_categories(category_mask("Nd"))
                      : set.add_complement(category_mask("Nd"));
        break;
      case 'x':
      case 'u':
        return read_code(set);
      default:
        if (const size_t at = kNamed.find(letter); at != kNamed.npos)
          meant = static_cast<unsigned char>(kMeant[at]);
        else if (meant >= 128 || char_class(meant) == CharClass::kLetter ||
                 char_class(meant) == CharClass::kNumber)
          return refuse(cat("\\", regex_.substr(at_ + 1, 1)));
        set.add(meant, meant);
        at_ += 2;
        return meant;
    }
    at_ += 2;
    return char32_t{0};
  }

  // \p{Lu}, \p{^Lu}
  Result<char32_t> read_category(CharSet& set, bool is_negated) {
    const size_t end = regex_.find('}', at_);
    if (regex_.substr(at_ + 2, 1) != "{" || end == regex_.npos) return refuse("\\p without a name");
    std::string_view name = regex_.substr(at_ + 3, end - at_ - 3);
    if (name.starts_with('^')) is_negated = !is_negated, name.remove_prefix(1);
    const uint32_t mask = category_mask(name);
    if (mask == 0) return refuse(cat("\\p{", name, "}"));
    is_negated ? set.add_complement(mask) : set.add_categories(mask);
    at_ = end + 1;
    return char32_t{0};
  }

  // \x41, \x{1f600}, \u0041
  Result<char32_t> read_code(CharSet& set) {
    const bool is_braced = regex_.substr(at_ + 1, 2) == "x{";
    const size_t begin = at_ + (is_braced ? 3 : 2);
    const size_t most = is_braced ? 6 : regex_[at_ + 1] == 'x' ? 2 : 4;
    char32_t value = 0;
    size_t n = 0;
    for (; n < most && begin + n < regex_.size(); ++n) {
      const char c = regex_[begin + n];
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) break;
      value = value * 16 + static_cast<char32_t>(digit);
    }
    const bool is_whole = is_braced ? n > 0 && regex_.substr(begin + n, 1) == "}" : n == most;
    if (!is_whole || value == 0 || value > 0x10ffff ||
        (regex_[at_ + 1] == 'x' && !is_braced && value >= 128))
      return refuse("a character's number in this form");
    at_ = begin + n + (is_braced ? 1 : 0);
    set.add(value, value);
    return value;
  }

  static size_t least_length(const Tree& tree) {
    size_t least = 0;
    switch (tree.kind) {
      case Tree::Kind::kSet:
        return tree.min;
      case Tree::Kind::kSequence:
        for (const Tree& part : tree.parts) least += least_length(part);
        return least;
      case Tree::Kind::kChoice:
        least = SIZE_MAX;
        for (const Tree& part : tree.parts) least = std::min(least, least_length(part));
        return tree.min == 0 ? 0 : least;
      default:
        return 0;
    }
  }

  using Node = Pattern::Node;
  using Kind = Pattern::Kind;

  size_t put(Node node) {
    double ways = 1;
    if (node.kind == Kind::kLoop && node.max != kEndless)
      ways = (node.max - node.min + 1) * ways_[node.next];
    else if (node.kind == Kind::kAhead || node.kind == Kind::kNotAhead)
      ways = ways_[node.inner] + ways_[node.next];
    else if (node.kind != Kind::kAccept && node.kind != Kind::kChoice)
      ways = ways_[node.next];
    for (const size_t choice : node.choices) ways += ways_[choice];
    ways_.push_back(std::min(ways, 1e9));
    pattern_.nodes_.push_back(std::move(node));
    return pattern_.nodes_.size() - 1;
  }

  // The node that the tree begins with, when `next` follows it.
  size_t emit(const Tree& tree, size_t next) {
    if (pattern_.nodes_.size() > kMostNodes) return next;
    switch (tree.kind) {
      case Tree::Kind::kSet:
        return emit_set(tree, next);
      case Tree::Kind::kSequence:
        for (size_t i = tree.parts.size(); i-- > 0;) next = emit(tree.parts[i], next);
        return next;
      case Tree::Kind::kChoice:
        return emit_choice(tree, next);
      default:
        break;
    }
    Node node;
    node.next = next;
    node.may_begin = pattern_.nodes_[next].may_begin;
    if (tree.kind == Tree::Kind::kAhead || tree.kind == Tree::Kind::kNotAhead) {
      Node accept;
      accept.may_begin.fill(true);
      node.inner = emit(tree.parts[0], put(std::move(accept)));
      node.kind = tree.kind == Tree::Kind::kAhead ? Kind::kAhead : Kind::kNotAhead;
    } else {
      node.kind = tree.kind == Tree::Kind::kLineEnd ? Kind::kLineEnd : Kind::kLineBegin;
    }
    return put(std::move(node));
  }

  size_t emit_set(const Tree& tree, size_t next) {
    Node node;
    node.kind = tree.min == 1 && tree.max == 1 ? Kind::kOne : Kind::kLoop;
    node.is_possessive = tree.is_possessive;
    node.min = tree.min, node.max = tree.max, node.next = next;
    if (node.kind == Kind::kLoop) node.loop = n_loops_++;
    node.set = static_cast<uint32_t>(pattern_.sets_.size());
    for (uint32_t c = 0; c < 128; ++c)
      node.may_begin[c] =
          tree.set.contains(c) || (tree.min == 0 && pattern_.nodes_[next].may_begin[c]);
    pattern_.sets_.push_back(tree.set);
    return put(std::move(node));
  }

  size_t emit_choice(const Tree& tree, size_t next) {
    if (tree.parts.size() == 1 && tree.min == 1) return emit(tree.parts[0], next);
    Node node;
    node.kind = Kind::kChoice;
    for (const Tree& part : tree.parts) node.choices.push_back(emit(part, next));
    if (tree.min == 0) node.choices.push_back(next);
    for (const size_t choice : node.choices)
      for (size_t c = 0; c < 128; ++c)
        node.may_begin[c] = node.may_begin[c] || pattern_.nodes_[choice].may_begin[c];
    return put(std::move(node));
  }

  std::string_view regex_;
  size_t at_ = 0;
  int depth_ = 0;
  bool ignores_case_ = false;
  uint32_t n_loops_ = 0;
  std::vector<double> ways_;  // of each node: how often it may be tried for one place
  Pattern pattern_;
};

Result<Pattern> Pattern::compile(std::string_view regex) { return PatternCompiler(regex).run(); }

}  // namespace tegula
