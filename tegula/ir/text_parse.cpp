#include <bit>
#include <charconv>
#include <cmath>
#include <unordered_map>

#include "tegula/base/sizes.h"
#include "tegula/ir/text.h"

namespace tegula {

namespace {

// Sizes beyond this are a mistake; within it, products of a scale and a bound do not overflow.
constexpr int64_t kMaxSize = kMaxElements;
constexpr int64_t kMaxScale = int64_t{1} << 20;

struct Token {
  enum Kind : uint8_t { kEnd, kWord, kNumber, kString, kValue, kMark };
  Kind kind = kEnd;
  std::string_view text;  // as it stands; a kValue without its %
  size_t at = 0;
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || is_digit(c);
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Module> run() {
    TEGULA_TRY(advance());
    if (is("mesh")) TEGULA_TRY(mesh());
    while (is("symbol")) TEGULA_TRY(symbol());
    while (is("func")) TEGULA_TRY(function());
    if (token_.kind != Token::kEnd)
      return expected(module_.functions.empty() ? "mesh, symbol or func" : "func");
    for (const auto& [at, id] : region_uses_)
      if (id < 0 || static_cast<size_t>(id) >= module_.functions.size())
        return error_at(
            at, cat("region ", id, " is not a function: there are ", module_.functions.size()));
    return std::move(module_);
  }

 private:
  Error error_at(size_t at, const std::string& what) const {
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at && i < text_.size(); ++i) {
      ++column;
      if (text_[i] == '\n') ++line, column = 1;
    }
    return invalid_argument(cat(line, ":", column, ": ", what));
  }
  Error expected(std::string_view what) const {
    if (token_.kind == Token::kEnd)
      return error_at(token_.at, cat("expected ", what, ", found the end"));
    const std::string_view found = token_.text.substr(0, 40);
    const char* open = token_.kind == Token::kString ? "" : "\"";
    return error_at(token_.at, cat("expected ", what, ", found ", open,
                                   token_.kind == Token::kValue ? "%" : "", found, open));
  }

  // Reads the next token.
  Status advance() {
    for (;; ++pos_) {
      if (pos_ < text_.size() && text_[pos_] == '#')
        while (pos_ < text_.size() && text_[pos_] != '\n') ++pos_;
      if (pos_ >= text_.size()) {
        token_ = {Token::kEnd, {}, text_.size()};
        return {};
      }
      const char c = text_[pos_];
      if (c != ' ' && c != '\n' && c != '\t' && c != '\r') break;
    }
    const size_t begin = pos_;
    const char c = text_[pos_];
    Token::Kind kind = Token::kMark;
    if (c == '"') {
      kind = Token::kString;
      for (++pos_; pos_ < text_.size() && text_[pos_] != '"'; ++pos_)
        if (text_[pos_] == '\\') ++pos_;
      if (pos_ >= text_.size()) return error_at(begin, "this string does not end");
      ++pos_;
    } else if (c == '%') {
      kind = Token::kValue;
      for (++pos_; pos_ < text_.size() && is_digit(text_[pos_]);) ++pos_;
      token_ = {kind, text_.substr(begin + 1, pos_ - begin - 1), begin};
      return {};
    } else if (is_digit(c) || (c == '-' && pos_ + 1 < text_.size() && is_digit(text_[pos_ + 1]))) {
      kind = Token::kNumber;
      number_end();
    } else if (is_word(c) || (c == '-' && text_.substr(pos_, 4) == "-inf")) {
      kind = Token::kWord;
      for (++pos_; pos_ < text_.size() && is_word(text_[pos_]);) ++pos_;
    } else {
      pos_ += text_.substr(pos_, 2) == "<=" ? 2 : 1;
    }
    token_ = {kind, text_.substr(begin, pos_ - begin), begin};
    return {};
  }
  void number_end() {
    for (++pos_; pos_ < text_.size(); ++pos_) {
      const char c = text_[pos_];
      const bool sign =
          (c == '-' || c == '+') && (text_[pos_ - 1] == 'e' || text_[pos_ - 1] == 'E');
      if (!is_digit(c) && c != '.' && c != 'e' && c != 'E' && !sign) return;
    }
  }

  bool is(std::string_view text) const {
    return (token_.kind == Token::kWord || token_.kind == Token::kMark) && token_.text == text;
  }
  Result<bool> accept(std::string_view text) {
    if (!is(text)) return false;
    TEGULA_TRY(advance());
    return true;
  }
  Status expect(std::string_view text) {
    if (!is(text)) return expected(cat("\"", text, "\""));
    return advance();
  }

  Result<int64_t> integer(std::string_view what, int64_t low = INT64_MIN,
                          int64_t high = INT64_MAX) {
    int64_t v = 0;
    const char* end = token_.text.data() + token_.text.size();
    const auto [ptr, ec] = std::from_chars(token_.text.data(), end, v);
    if (token_.kind != Token::kNumber || ptr != end || ec != std::errc()) return expected(what);
    if (v < low || v > high)
      return error_at(token_.at, cat(what, " is ", v, ", must be in [", low, ", ", high, "]"));
    TEGULA_TRY(advance());
    return v;
  }

  Result<std::string> string(std::string_view what) {
    if (token_.kind != Token::kString) return expected(what);
    const std::string_view raw = token_.text.substr(1, token_.text.size() - 2);
    std::string out;
    for (size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] != '\\') {
        out += raw[i];
        continue;
      }
      const char c = raw[++i];
      unsigned code = 0;
      if (c == 'n') {
        out += '\n';
      } else if (c == '"' || c == '\\') {
        out += c;
      } else if (c == 'x' && i + 2 < raw.size() &&
                 std::from_chars(raw.data() + i + 1, raw.data() + i + 3, code, 16).ptr ==
                     raw.data() + i + 3) {
        out += static_cast<char>(code);
        i += 2;
      } else {
        return error_at(token_.at + 1 + i, "expected \\n, \\\", \\\\ or \\xHH");
      }
    }
    TEGULA_TRY(advance());
    return out;
  }

  Result<std::string_view> word(std::string_view what) {
    if (token_.kind != Token::kWord) return expected(what);
    const std::string_view w = token_.text;
    TEGULA_TRY(advance());
    return w;
  }

  Status mesh() {
    TEGULA_TRY(advance());
    const size_t at = token_.at;
    std::string text;
    do {
      text += cat(text.empty() ? "" : ",", TEGULA_TRY(word("an axis")), "=");
      TEGULA_TRY(expect("="));
      text += cat(TEGULA_TRY(integer("an axis' size", 1, kMaxSize)));
    } while (TEGULA_TRY(accept(",")));
    auto mesh = mesh_from_text(text);
    if (!mesh.ok()) return error_at(at, mesh.error().message);
    module_.mesh = std::move(*mesh);
    return {};
  }

  Status symbol() {
    TEGULA_TRY(advance());
    const size_t at = token_.at;
    const std::string label(TEGULA_TRY(word("a symbol's name")));
    std::string name = label;
    if (token_.kind == Token::kString) name = TEGULA_TRY(string("a name"));
    TEGULA_TRY(expect("<="));
    const int64_t bound = TEGULA_TRY(integer("the symbol's bound", 0, kMaxSize));
    const auto id = static_cast<int32_t>(module_.symbols.size());
    if (!symbols_.emplace(label, id).second)
      return error_at(at, cat("symbol ", label, " stands twice"));
    module_.add_symbol(std::move(name), bound);
    return {};
  }

  // 4, n, 2*n, n+1, 2*n-1
  Result<Dim> dim() {
    int64_t first = 1;
    if (token_.kind == Token::kNumber) {
      const size_t at = token_.at;
      first = TEGULA_TRY(integer("a size", -kMaxSize, kMaxSize));
      if (!TEGULA_TRY(accept("*"))) return Dim(first);
      if (first < -kMaxScale || first > kMaxScale || first == 0)
        return error_at(at, cat("a symbol times ", first));
    }
    const Token name = token_;
    const auto it = symbols_.find(std::string(TEGULA_TRY(word("a size or a symbol"))));
    if (it == symbols_.end()) return error_at(name.at, cat("there is no symbol ", name.text));
    Dim d = Dim::of(it->second, module_.symbols[static_cast<size_t>(it->second)].bound);
    d.scale = static_cast<int32_t>(first);
    if (TEGULA_TRY(accept("+"))) {
      d.offset = TEGULA_TRY(integer("an offset", 1, kMaxSize));
    } else if (token_.kind == Token::kNumber && token_.text[0] == '-') {
      d.offset = TEGULA_TRY(integer("an offset", -kMaxSize, -1));
    }
    return d;
  }
  Result<std::vector<Dim>> dims(std::string_view close) {
    std::vector<Dim> out;
    if (TEGULA_TRY(accept(close))) return out;
    do {
      out.push_back(TEGULA_TRY(dim()));
    } while (TEGULA_TRY(accept(",")));
    TEGULA_TRY(expect(close));
    return out;
  }
  Result<Type> type() {
    const auto dtype = token_.kind == Token::kWord ? parse_dtype(token_.text) : std::nullopt;
    if (!dtype) return expected("a dtype");
    const size_t at = token_.at;
    TEGULA_TRY(advance());
    TEGULA_TRY(expect("["));
    const auto d = TEGULA_TRY(dims("]"));
    if (d.size() > kMaxRank) return error_at(at, cat("a shape of ", d.size(), " dims, 8 at most"));
    return Type{*dtype, Shape(std::span<const Dim>(d))};
  }

  // Reads what may stand behind the type of value `v`: "[dp:0, tp:+]".
  Status sharding(ValueId v) {
    if (!is("[")) return {};
    const size_t at = token_.at, end = text_.find(']', at);
    if (end == text_.npos) return error_at(at, "this sharding does not end: expected ]");
    auto s = sharding_from_text(module_.mesh, text_.substr(at, end + 1 - at));
    if (!s.ok()) return error_at(at, s.error().message);
    f_.set_sharding(v, std::move(*s));
    pos_ = end + 1;
    return advance();
  }

  Result<AttrValue> attr() {
    if (token_.kind == Token::kString) return AttrValue(TEGULA_TRY(string("a string")));
    if (token_.kind == Token::kNumber) {
      if (token_.text.find_first_of(".eE") == std::string_view::npos)
        return AttrValue(TEGULA_TRY(integer("an integer")));
      double v = 0;
      const char* end = token_.text.data() + token_.text.size();
      const auto [ptr, ec] = std::from_chars(token_.text.data(), end, v);
      if (ptr != end || ec != std::errc()) return expected("a number");
      TEGULA_TRY(advance());
      return AttrValue(v);
    }
    if (TEGULA_TRY(accept("("))) return AttrValue(TEGULA_TRY(dims(")")));
    if (TEGULA_TRY(accept("["))) {
      std::vector<int64_t> out;
      if (TEGULA_TRY(accept("]"))) return AttrValue(out);
      do {
        out.push_back(TEGULA_TRY(integer("an integer")));
      } while (TEGULA_TRY(accept(",")));
      TEGULA_TRY(expect("]"));
      return AttrValue(out);
    }
    if (TEGULA_TRY(accept("true"))) return AttrValue(true);
    if (TEGULA_TRY(accept("false"))) return AttrValue(false);
    if (TEGULA_TRY(accept("inf"))) return AttrValue(HUGE_VAL);
    if (TEGULA_TRY(accept("-inf"))) return AttrValue(-HUGE_VAL);
    if (is("nan")) return nan();
    if (const auto d = parse_dtype(token_.text); token_.kind == Token::kWord && d) {
      TEGULA_TRY(advance());
      return AttrValue(*d);
    }
    return expected("an attribute's value");
  }
  // nan(7ff8000000000000): the bits.
  Result<AttrValue> nan() {
    TEGULA_TRY(advance());
    if (!is("(")) return expected("\"(\"");
    const size_t at = pos_;
    uint64_t bits = 0;
    const char* begin = text_.data() + at;
    const auto [ptr, ec] = std::from_chars(begin, text_.data() + text_.size(), bits, 16);
    const auto v = std::bit_cast<double>(bits);
    if (ec != std::errc() || ptr - begin != 16 || v == v)
      return error_at(at, "expected the bits of a NaN");
    pos_ += 16;
    TEGULA_TRY(advance());
    TEGULA_TRY(expect(")"));
    return AttrValue(v);
  }

  Status function() {
    TEGULA_TRY(advance());
    const size_t at = token_.at;
    const int64_t id = TEGULA_TRY(integer("the function's number"));
    if (id != static_cast<int64_t>(module_.functions.size()))
      return error_at(at, cat("expected function ", module_.functions.size(), ", found ", id));
    f_ = Function();
    values_.clear();
    f_.name = TEGULA_TRY(string("the function's name, quoted"));
    TEGULA_TRY(expect("{"));
    std::vector<std::pair<size_t, int64_t>> donations;
    while (is("param")) TEGULA_TRY(param(donations));
    while (!is("result") && !is("}")) TEGULA_TRY(node());
    while (is("result")) {
      TEGULA_TRY(advance());
      std::string name = TEGULA_TRY(string("the result's name, quoted"));
      const ValueId result = TEGULA_TRY(value());
      f_.results.push_back({std::move(name), result});
    }
    TEGULA_TRY(expect("}"));
    for (const auto& [where, to] : donations)
      if (static_cast<size_t>(to) >= f_.results.size())
        return error_at(where, cat("donated to result ", to, ", there are ", f_.results.size()));
    module_.add(std::move(f_));
    return {};
  }

  Status param(std::vector<std::pair<size_t, int64_t>>& donations) {
    TEGULA_TRY(advance());
    Param p;
    p.value = static_cast<ValueId>(f_.values.size());
    TEGULA_TRY(define(TEGULA_TRY(definition()), p.value));
    if (TEGULA_TRY(accept("input"))) {
      p.role = Role::kInput;
    } else if (TEGULA_TRY(accept("weight"))) {
      p.role = Role::kWeight;
    } else if (TEGULA_TRY(accept("state"))) {
      p.role = Role::kState;
    } else {
      return expected("input, weight or state");
    }
    p.name = TEGULA_TRY(string("the parameter's name, quoted"));
    const Type t = TEGULA_TRY(type());
    f_.values.push_back({t, kNone, static_cast<uint32_t>(f_.params.size())});
    TEGULA_TRY(sharding(p.value));
    if (TEGULA_TRY(accept("donated"))) {
      const size_t where = token_.at;
      donations.emplace_back(where, TEGULA_TRY(integer("a result's index", 0, INT32_MAX)));
      p.donated_to = static_cast<int>(donations.back().second);
    }
    f_.params.push_back(std::move(p));
    return {};
  }

  // A %number that is not defined yet becomes value `id`.
  Status define(const Token& t, ValueId id) {
    if (!values_.emplace(std::string(t.text), id).second)
      return error_at(t.at, cat("%", t.text, " is defined twice"));
    return {};
  }
  Result<Token> definition() {
    if (token_.kind != Token::kValue || token_.text.empty()) return expected("a value, like %3");
    const Token t = token_;
    TEGULA_TRY(advance());
    return t;
  }
  Result<ValueId> value() {
    if (token_.kind != Token::kValue || token_.text.empty()) return expected("a value, like %3");
    const auto it = values_.find(std::string(token_.text));
    if (it == values_.end())
      return error_at(token_.at, cat("%", token_.text, " is not defined before its use"));
    TEGULA_TRY(advance());
    return it->second;
  }

  Status node() {
    Node n;
    n.first_output = static_cast<ValueId>(f_.values.size());
    n.n_outputs = 0;
    std::vector<Token> outputs;  // defined after the operands: a node does not read itself
    if (token_.kind == Token::kValue) {
      do {
        outputs.push_back(TEGULA_TRY(definition()));
      } while (TEGULA_TRY(accept(",")));
      TEGULA_TRY(expect("="));
    }
    n.n_outputs = static_cast<uint32_t>(outputs.size());
    n.op = token_.kind == Token::kWord ? find_op(token_.text) : nullptr;
    if (!n.op)
      return expected(outputs.empty() ? "an op, a value, result or }" : "the name of an op");
    TEGULA_TRY(advance());
    TEGULA_TRY(expect("("));
    if (!TEGULA_TRY(accept(")"))) {
      do {
        n.inputs.push_back(TEGULA_TRY(value()));
      } while (TEGULA_TRY(accept(",")));
      TEGULA_TRY(expect(")"));
    }
    TEGULA_TRY(attrs_and_regions(n));
    const auto id = static_cast<NodeId>(f_.nodes.size());
    for (uint32_t i = 0; i < n.n_outputs; ++i) {
      TEGULA_TRY(expect(i ? "," : ":"));
      const Type t = TEGULA_TRY(type());
      f_.values.push_back({t, id, i});
      TEGULA_TRY(sharding(n.output(i)));
    }
    if (TEGULA_TRY(accept("backward"))) {
      n.phase = Phase::kBackward;
    } else if (TEGULA_TRY(accept("update"))) {
      n.phase = Phase::kUpdate;
    }
    if (TEGULA_TRY(accept("in")))
      n.origin.scope = module_.scope(TEGULA_TRY(string("the place, quoted")));
    for (uint32_t i = 0; i < n.n_outputs; ++i) TEGULA_TRY(define(outputs[i], n.output(i)));
    f_.nodes.push_back(std::move(n));
    return {};
  }

  Status attrs_and_regions(Node& n) {
    if (TEGULA_TRY(accept("{"))) {
      do {
        const size_t at = token_.at;
        const std::string_view name = TEGULA_TRY(word("an attribute's name"));
        if (n.attrs.has(name)) return error_at(at, cat("attribute ", name, " stands twice"));
        TEGULA_TRY(expect("="));
        n.attrs.set(name, TEGULA_TRY(attr()));
      } while (TEGULA_TRY(accept(",")));
      TEGULA_TRY(expect("}"));
    }
    if (!TEGULA_TRY(accept("regions"))) return {};
    TEGULA_TRY(expect("["));
    do {
      region_uses_.emplace_back(token_.at, 0);
      region_uses_.back().second = TEGULA_TRY(integer("a function's number", 0, INT32_MAX));
      n.regions.push_back(static_cast<FuncId>(region_uses_.back().second));
    } while (TEGULA_TRY(accept(",")));
    return expect("]");
  }

  std::string_view text_;
  size_t pos_ = 0;
  Token token_;
  Module module_;
  Function f_;
  std::unordered_map<std::string, int32_t> symbols_;
  std::unordered_map<std::string, ValueId> values_;
  std::vector<std::pair<size_t, int64_t>> region_uses_;
};

}  // namespace

Result<Module> module_from_text(std::string_view text) { return Parser(text).run(); }

}  // namespace tegula
