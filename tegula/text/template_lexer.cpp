#include "tegula/text/template_lexer.h"

#include "tegula/base/algorithm.h"
#include "tegula/text/normal_form.h"
#include "tegula/text/template_value.h"

namespace tegula::jinja {

namespace {
using Kind = Token::Kind;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return is_digit(c) || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_'; }

// "\r\n" and "\r" are "\n", and the last line break of the text goes.
std::string with_newlines(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    out += text[i] == '\r' ? '\n' : text[i];
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view text) : source_(with_newlines(text)) {}

  Result<std::vector<Token>> read() {
    while (at_ < source_.size()) TEGULA_TRY(read_data());
    add(Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  void add(Kind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text)}); }
  bool sees(std::string_view what) const {
    return std::string_view(source_).substr(at_).starts_with(what);
  }
  void go_to(size_t at) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(at_),
                                         source_.begin() + static_cast<ptrdiff_t>(at), '\n'));
    at_ = at;
  }
  void skip_space() {
    go_to(source_.size() - strip(std::string_view(source_).substr(at_), true, false).size());
  }
  Error wrong(std::string_view what) const {
    return invalid_argument(cat("line ", line_, ": ", what));
  }

  // Text before a tag with this sign; `may_trim`: the tag is no {{.
  std::string_view before(std::string_view text, char sign, bool may_trim) const {
    if (sign == '-') return strip(text, false, true);
    if (sign == '+' || !may_trim) return text;
    const size_t line = text.rfind('\n') + 1;  // 0: none
    const bool begins = line > 0 || at_ == 0 || source_[at_ - 1] == '\n';
    const bool is_blank = strip(text.substr(line), true, false).empty();
    return begins && is_blank ? text.substr(0, line) : text;
  }
  // Behind "%}" or "#}", where `-` before it has taken all white space.
  void end_tag(char sign, bool trims) {
    if (sign == '-') return skip_space();
    if (sign != '+' && trims && sees("\n")) go_to(at_ + 1);
  }
  char sign_at(size_t at) const {
    return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : ' ';
  }
  // The end of `{% name %}` where one stands at `at`, else npos; its signs.
  size_t tag_end(size_t at, std::string_view name, char& first, char& last) const {
    first = sign_at(at + 2);
    std::string_view rest = std::string_view(source_).substr(at + (first == ' ' ? 2 : 3));
    rest = strip(rest, true, false);
    if (!rest.starts_with(name)) return source_.npos;
    rest = strip(rest.substr(name.size()), true, false);
    last = rest.empty() ? ' ' : sign_at(static_cast<size_t>(rest.data() - source_.data()));
    if (last != ' ') rest.remove_prefix(1);
    if (!rest.starts_with("%}")) return source_.npos;
    return static_cast<size_t>(rest.data() - source_.data()) + 2;
  }

  // Text up to a tag, and the tag.
  Status read_data() {
    size_t at = at_;
    do {
      at = source_.find('{', at);
      if (at == source_.npos || at + 1 >= source_.size()) {
        add(Kind::kData, source_.substr(at_));
        at_ = source_.size();
        return {};
      }
    } while (std::string_view("%{#").find(source_[++at]) == source_.npos);
    --at;
    const char what = source_[at + 1];
    char sign = sign_at(at + 2), last = ' ';
    const auto text = before(std::string_view(source_).substr(at_, at - at_), sign, what != '{');
    if (!text.empty()) add(Kind::kData, std::string(text));
    const size_t raw = what == '%' ? tag_end(at, "raw", sign, last) : source_.npos;
    if (raw != source_.npos && last != '+') {
      go_to(raw);
      if (last == '-') skip_space();
      return read_raw();
    }
    go_to(at + (sign == ' ' ? 2 : 3));
    if (what == '#') return read_comment();
    add(what == '{' ? Kind::kPrintBegin : Kind::kBlockBegin, "");
    return read_tag(what == '{');
  }

  Status read_raw() {
    char sign = ' ', last = ' ';
    for (size_t at = source_.find("{%", at_); at != source_.npos; at = source_.find("{%", at + 1)) {
      const size_t end = tag_end(at, "endraw", sign, last);
      if (end == source_.npos) continue;
      const auto text = before(std::string_view(source_).substr(at_, at - at_), sign, true);
      if (!text.empty()) add(Kind::kData, std::string(text));
      go_to(end);
      end_tag(last, true);
      return {};
    }
    return wrong("{% raw %} has no {% endraw %}");
  }

  Status read_comment() {
    const size_t end = source_.find("#}", at_);
    if (end == source_.npos) return wrong("a comment {# has no end #}");
    const char sign = end > at_ ? sign_at(end - 1) : ' ';
    go_to(end + 2);
    end_tag(sign, true);
    return {};
  }

  Status read_tag(bool prints) {
    const std::string_view end = prints ? "}}" : "%}";
    std::string open;  // brackets, as they are closed
    for (;;) {
      skip_space();
      if (at_ == source_.size()) return wrong(cat("the tag has no end ", end));
      const char sign = prints && source_[at_] == '+' ? ' ' : sign_at(at_);
      if (open.empty() && std::string_view(source_).substr(at_ + (sign != ' ')).starts_with(end)) {
        add(prints ? Kind::kPrintEnd : Kind::kBlockEnd, "");
        go_to(at_ + (sign == ' ' ? 2 : 3));
        end_tag(sign, !prints);
        return {};
      }
      TEGULA_TRY(read_token(open));
    }
  }

  Status read_token(std::string& open) {
    const char c = source_[at_];
    if (is_digit(c)) return read_number();
    if (c == '\'' || c == '"') return read_string(c);
    if (is_word(c)) {
      const size_t n = word_end(at_) - at_;
      add(Kind::kName, source_.substr(at_, n));
      at_ += n;
      return {};
    }
    if ((c & 0x80) != 0) return unsupported(cat("line ", line_, ": names beyond ASCII"));
    for (const std::string_view two : {"//", "**", "==", "!=", ">=", "<="})
      if (sees(two)) return read_operator(2);
    if (std::string_view("{}()[]+-/*%~<>=.:|,;").find(c) == std::string_view::npos)
      return wrong(cat("unexpected '", c, "'"));
    const size_t bracket = std::string_view("([{").find(c);
    if (bracket != std::string_view::npos) open += ")]}"[bracket];
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) return wrong(cat("unexpected '", c, "'"));
      open.pop_back();
    }
    return read_operator(1);
  }
  Status read_operator(size_t n) {
    add(Kind::kOperator, source_.substr(at_, n));
    at_ += n;
    return {};
  }
  size_t word_end(size_t at) const {
    while (at < source_.size() && is_word(source_[at])) ++at;
    return at;
  }

  // 12, 1_000, 0x1f, 1.5, 2e-3; behind a dot (x.1.2) an integer.
  Status read_number() {
    const auto digits = [&](size_t at) {
      while (at < source_.size() &&
             (is_digit(source_[at]) ||
              (source_[at] == '_' && at + 1 < source_.size() && is_digit(source_[at + 1]))))
        ++at;
      return at;
    };
    const auto begins = [&](size_t at) { return at < source_.size() && is_digit(source_[at]); };
    size_t end = digits(at_);
    bool is_float = false;
    if (at_ == 0 || source_[at_ - 1] != '.') {
      if (end < source_.size() && source_[end] == '.' && begins(end + 1))
        is_float = true, end = digits(end + 1);
      if (end < source_.size() && (source_[end] | 32) == 'e') {
        const size_t from = end + 1 + (sign_at(end + 1) != ' ');
        if (begins(from)) is_float = true, end = digits(from);
      }
    }
    if (source_[at_] == '0' && end == at_ + 1 && end < source_.size() &&
        std::string_view("xXoObB").find(source_[end]) != std::string_view::npos)
      end = word_end(end);
    std::string text = source_.substr(at_, end - at_);
    std::erase(text, '_');
    if (!is_float && text.size() > 1 && text[0] == '0' && is_digit(text[1]) &&
        text.find_first_not_of('0') != text.npos)
      return wrong(cat("a number begins with 0: ", text));
    add(is_float ? Kind::kFloat : Kind::kInteger, std::move(text));
    at_ = end;
    return {};
  }

  Status read_string(char quote) {
    const int line = line_;
    std::string text;
    size_t at = at_ + 1;
    for (; at < source_.size() && source_[at] != quote; ++at) {
      if (source_[at] != '\\')
        text += source_[at];
      else if (++at < source_.size())
        TEGULA_TRY(read_escape(at, text));
    }
    if (at >= source_.size()) return wrong("a string has no end");
    go_to(at + 1);
    tokens_.push_back({Kind::kString, line, std::move(text)});
    return {};
  }

  // `at` is behind the backslash, and afterwards at the last character of the escape.
  Status read_escape(size_t& at, std::string& text) {
    constexpr std::string_view kFrom = "ntrabfv\\'\"", kTo = "\n\t\r\a\b\f\v\\'\"";
    const char c = source_[at];
    if (c == '\n') return {};
    if (const size_t i = kFrom.find(c); i != kFrom.npos) {
      text += kTo[i];
      return {};
    }
    char32_t value = 0;
    if (c >= '0' && c <= '7') {
      const size_t end = at + 3;
      for (; at < end && at < source_.size() && source_[at] >= '0' && source_[at] <= '7'; ++at)
        value = value * 8 + static_cast<char32_t>(source_[at] - '0');
      --at;
    } else if (const size_t n = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0; n > 0) {
      for (size_t k = 1; k <= n; ++k) {
        const char h = at + k < source_.size() ? source_[at + k] : ' ';
        const size_t digit =
            std::string_view("0123456789abcdef").find(is_digit(h) ? h : static_cast<char>(h | 32));
        if (digit == std::string_view::npos)
          return wrong(cat("the escape \\", c, " in a string needs ", n, " digits"));
        value = value * 16 + static_cast<char32_t>(digit);
      }
      at += n;
    } else {
      if (c == 'N') return unsupported(cat("line ", line_, ": the escape \\N in a string"));
      text += '\\', text += c;
      return {};
    }
    if (value >= 0x110000 || (value >= 0xd800 && value < 0xe000))
      return unsupported(cat("line ", line_, ": a string's escape is no character"));
    text += to_utf8(std::u32string_view(&value, 1));
    return {};
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> read_tokens(std::string_view source) { return Lexer(source).read(); }

}  // namespace tegula::jinja
