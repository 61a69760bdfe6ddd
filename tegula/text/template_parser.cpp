#include <charconv>

#include "tegula/base/range.h"
#include "tegula/text/template_lexer.h"
#include "tegula/text/template_tree.h"

namespace tegula::jinja {

namespace {
using Kind = Node::Kind;
using Is = Token::Kind;
using Names = std::initializer_list<std::string_view>;

bool is_one_of(std::string_view name, Names names) { return contains(names, name); }

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  Result<Node> read() { return statements({}); }

 private:
  const Token& now() const { return tokens_[at_]; }
  const Token& next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool sees(Is kind, std::string_view text) const {
    return now().kind == kind && now().text == text;
  }
  bool sees_name(std::string_view text) const { return sees(Is::kName, text); }
  bool sees_op(std::string_view text) const { return sees(Is::kOperator, text); }
  bool skip(Is kind, std::string_view text) {
    const bool is = sees(kind, text);
    at_ += is ? 1 : 0;
    return is;
  }
  bool skip_name(std::string_view text) { return skip(Is::kName, text); }
  bool skip_op(std::string_view text) { return skip(Is::kOperator, text); }

  Error wrong(std::string_view what) const {
    return invalid_argument(cat("line ", now().line, ": ", what));
  }
  std::string shown() const {
    static constexpr const char* kNames[] = {"text", "{{",       "}}", "{%", "%}",     "",
                                             "",     "a number", "",   "",   "the end"};
    return now().text.empty() ? kNames[static_cast<size_t>(now().kind)] : cat("'", now().text, "'");
  }
  Status expect(Is kind, std::string_view text) {
    if (now().kind == kind && (text.empty() || now().text == text)) return next(), Status();
    static constexpr const char* kNames[] = {"text", "{{", "}}", "{%", "%}", "a name"};
    return wrong(cat("expected ", text.empty() ? kNames[static_cast<size_t>(kind)] : text, ", not ",
                     shown()));
  }
  Status expect_op(std::string_view text) { return expect(Is::kOperator, text); }
  Result<std::string> name() {
    if (now().kind != Is::kName) return wrong(cat("expected a name, not ", shown()));
    return next().text;
  }

  Result<Node> make(Kind kind, int line, std::vector<Node> args = {}, std::string name = "") const {
    Node n{kind, line, 0, std::move(name), {}, std::move(args)};
    for (const Node& each : n.args) n.depth = std::max(n.depth, each.depth + 1);
    if (n.depth > kMaxDepth) return too_deep(line);
    return n;
  }
  template <class... Nodes>
  Result<Node> make_of(Kind kind, int line, Nodes&&... nodes) const {
    std::vector<Node> args;
    (args.push_back(std::forward<Nodes>(nodes)), ...);
    return make(kind, line, std::move(args));
  }
  Result<Node> constant(Value value, int line, Kind kind = Kind::kConst) const {
    Node n = TEGULA_TRY(make(kind, line));
    n.value = std::move(value);
    return n;
  }
  static Error too_deep(int line) {
    return unsupported(cat("line ", line, ": it is nested more than ", kMaxDepth, " levels deep"));
  }
  // One level of recursion, for as long as it lives.
  struct Level {
    explicit Level(int& depth) : depth_(depth) { ++depth_; }
    ~Level() { --depth_; }
    int& depth_;
  };
#define TEGULA_JINJA_LEVEL   \
  const Level level(depth_); \
  if (depth_ > kMaxDepth) return too_deep(now().line)

  // Statements up to `{% name`, where one of the names stands; the name is still to be read.
  Result<Node> statements(Names ends) {
    TEGULA_JINJA_LEVEL;
    const int line = now().line;
    std::vector<Node> all;
    for (;;) {
      const Token& t = now();
      if (t.kind == Is::kEnd) {
        if (ends.size() == 0) return make(Kind::kBlock, line, std::move(all));
        return wrong(cat("the template ends before {% ", *(ends.end() - 1), " %} of line ", line));
      }
      next();
      if (t.kind == Is::kData) {
        all.push_back(TEGULA_TRY(constant(Value(t.text), t.line, Kind::kData)));
      } else if (t.kind == Is::kPrintBegin) {
        all.push_back(TEGULA_TRY(make_of(Kind::kPrint, t.line, TEGULA_TRY(tuple()))));
        TEGULA_TRY(expect(Is::kPrintEnd, ""));
      } else {
        if (now().kind == Is::kName && is_one_of(now().text, ends))
          return make(Kind::kBlock, line, std::move(all));
        all.push_back(TEGULA_TRY(statement()));
        TEGULA_TRY(expect(Is::kBlockEnd, ""));
      }
    }
  }
  Result<Node> body(Names ends) {
    skip_op(":");
    TEGULA_TRY(expect(Is::kBlockEnd, ""));
    return statements(ends);
  }
  // The same, and the one name is read.
  Result<Node> body_to(std::string_view end) {
    Node all = TEGULA_TRY(body({end}));
    next();
    return all;
  }

  Result<Node> statement() {
    const int line = now().line;
    const std::string tag = TEGULA_TRY(name());
    if (tag == "for") return for_loop(line);
    if (tag == "if") return if_chain(line);
    if (tag == "set") return set(line);
    if (tag == "macro") {
      const std::string its = TEGULA_TRY(name());
      return macro(line, its, true, "endmacro");
    }
    if (tag == "call") return call_block(line);
    if (tag == "with") return with(line);
    if (tag == "filter") {
      Node filters = TEGULA_TRY(filter(TEGULA_TRY(make(Kind::kHole, line))));
      return make_of(Kind::kFilterBlock, line, std::move(filters),
                     TEGULA_TRY(body_to("endfilter")));
    }
    if (tag == "generation")  // names that are set in it stay there
      return make_of(Kind::kWith, line, TEGULA_TRY(body_to("endgeneration")));
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) return wrong(cat("{% ", tag, " %} outside of a loop"));
      return make(tag == "break" ? Kind::kBreak : Kind::kContinue, line);
    }
    if (is_one_of(tag, {"include", "import", "from", "extends", "block", "autoescape", "print"}))
      return unsupported(cat("line ", line, ": the tag {% ", tag, " %}"));
    return invalid_argument(cat("line ", line, ": unknown tag {% ", tag, " %}"));
  }

  Result<Node> for_loop(int line) {
    std::vector<Node> parts;
    parts.push_back(TEGULA_TRY(target(true, false)));
    TEGULA_TRY(expect(Is::kName, "in"));
    parts.push_back(TEGULA_TRY(tuple(false)));
    Node test = TEGULA_TRY(make(Kind::kNothing, line));
    if (skip_name("if")) test = TEGULA_TRY(expression());
    parts.push_back(std::move(test));
    if (sees_name("recursive")) return unsupported(cat("line ", line, ": a recursive loop"));
    ++loops_;
    parts.push_back(TEGULA_TRY(body({"else", "endfor"})));
    --loops_;
    const bool has_else = next().text == "else";
    parts.push_back(TEGULA_TRY(has_else ? body_to("endfor") : make(Kind::kBlock, line)));
    return make(Kind::kFor, line, std::move(parts));
  }

  Result<Node> if_chain(int line) {
    std::vector<Node> parts;
    for (;;) {
      parts.push_back(TEGULA_TRY(tuple(false)));
      parts.push_back(TEGULA_TRY(body({"elif", "else", "endif"})));
      const std::string end = next().text;
      if (end == "elif") continue;
      if (end == "else") parts.push_back(TEGULA_TRY(body_to("endif")));
      return make(Kind::kIf, line, std::move(parts));
    }
  }

  Result<Node> set(int line) {
    Node to = TEGULA_TRY(target(true, true));
    if (skip_op("=")) return make_of(Kind::kSet, line, std::move(to), TEGULA_TRY(tuple()));
    Node filters = TEGULA_TRY(make(Kind::kHole, line));
    if (skip_op("|")) filters = TEGULA_TRY(filter(std::move(filters)));
    return make_of(Kind::kWrite, line, std::move(to), std::move(filters),
                   TEGULA_TRY(body_to("endset")));
  }

  Result<Node> with(int line) {
    std::vector<Node> parts;
    while (now().kind != Is::kBlockEnd) {
      if (!parts.empty()) TEGULA_TRY(expect_op(","));
      parts.push_back(TEGULA_TRY(target(true, false)));
      TEGULA_TRY(expect_op("="));
      parts.push_back(TEGULA_TRY(expression()));
    }
    parts.push_back(TEGULA_TRY(body_to("endwith")));
    return make(Kind::kWith, line, std::move(parts));
  }

  Result<Node> macro(int line, std::string name, bool has_parameters, std::string_view end) {
    std::vector<Node> parts;
    if (has_parameters) {
      TEGULA_TRY(expect_op("("));
      while (!sees_op(")")) {
        if (!parts.empty()) TEGULA_TRY(expect_op(","));
        std::string its = TEGULA_TRY(this->name());
        Node otherwise = TEGULA_TRY(make(Kind::kNothing, line));
        if (skip_op("="))
          otherwise = TEGULA_TRY(expression());
        else if (!parts.empty() && !parts.back().args[0].is(Kind::kNothing))
          return wrong(cat("the parameter ", its, " has no default, but one before it has"));
        Node parameter = TEGULA_TRY(make_of(Kind::kKeyword, line, std::move(otherwise)));
        parameter.name = std::move(its);
        parts.push_back(std::move(parameter));
      }
      next();
    }
    if (end == "endcall") return make(Kind::kMacro, line, std::move(parts), std::move(name));
    const int loops = std::exchange(loops_, 0);
    ++macros_;
    parts.push_back(TEGULA_TRY(body_to(end)));
    --macros_, loops_ = loops;
    return make(Kind::kMacro, line, std::move(parts), std::move(name));
  }

  Result<Node> call_block(int line) {
    Node caller = TEGULA_TRY(macro(line, "caller", sees_op("("), "endcall"));
    Node call = TEGULA_TRY(expression());
    if (!call.is(Kind::kCall)) return invalid_argument(cat("line ", line, ": expected a call"));
    const int loops = std::exchange(loops_, 0);
    caller.args.push_back(TEGULA_TRY(body_to("endcall")));
    loops_ = loops;
    caller.depth = std::max(caller.depth, caller.args.back().depth + 1);
    return make_of(Kind::kCallBlock, line, std::move(call), std::move(caller));
  }

  // A name, names in a tuple, or a namespace's attribute.
  Result<Node> target(bool may_be_tuple, bool may_be_space) {
    const int line = now().line;
    std::vector<Node> all;
    bool is_tuple = false;
    do {
      if (sees_name("in") || (sees_op("=") && is_tuple)) break;
      if (may_be_tuple && skip_op("(")) {
        TEGULA_JINJA_LEVEL;
        all.push_back(TEGULA_TRY(target(true, may_be_space)));
        TEGULA_TRY(expect_op(")"));
        continue;
      }
      const int at = now().line;
      std::string its = TEGULA_TRY(name());
      if (is_one_of(its, {"true", "false", "none", "True", "False", "None"}))
        return wrong(cat("can't assign to ", its));
      if (may_be_space && skip_op(".")) {
        Node n = TEGULA_TRY(constant(Value(TEGULA_TRY(name())), at, Kind::kSpaceName));
        n.name = std::move(its);
        all.push_back(std::move(n));
      } else {
        all.push_back(TEGULA_TRY(make(Kind::kName, at, {}, std::move(its))));
      }
    } while (may_be_tuple && skip_op(",") && (is_tuple = true));
    if (!is_tuple && all.size() == 1) return std::move(all[0]);
    return make(Kind::kTuple, line, std::move(all));
  }

  // An expression, or several with commas.
  Result<Node> tuple(bool has_choice = true, bool in_brackets = false) {
    const int line = now().line;
    std::vector<Node> all;
    bool is_tuple = false;
    for (;;) {
      if (now().kind == Is::kPrintEnd || now().kind == Is::kBlockEnd || sees_op(")")) break;
      all.push_back(TEGULA_TRY(has_choice ? expression() : disjunction()));
      if (!skip_op(",")) break;
      is_tuple = true;
    }
    if (!is_tuple && !all.empty()) return std::move(all[0]);
    if (!is_tuple && !in_brackets) return wrong(cat("expected an expression, not ", shown()));
    return make(Kind::kTuple, line, std::move(all));
  }

  Result<Node> expression() {
    TEGULA_JINJA_LEVEL;
    Node left = TEGULA_TRY(disjunction());
    while (sees_name("if")) {
      const int line = next().line;
      Node test = TEGULA_TRY(disjunction());
      Node otherwise = TEGULA_TRY(skip_name("else") ? expression() : make(Kind::kNothing, line));
      left = TEGULA_TRY(
          make_of(Kind::kChoice, line, std::move(test), std::move(left), std::move(otherwise)));
    }
    return left;
  }

  // left op right op right …, which groups from the left.
  template <class Operand, class Sees>
  Result<Node> chain(Kind kind, Operand operand, Sees sees) {
    Node left = TEGULA_TRY(operand());
    while (sees()) {
      const Token& op = next();
      Node right = TEGULA_TRY(operand());
      left = TEGULA_TRY(make_of(kind, op.line, std::move(left), std::move(right)));
      left.name = op.text;
    }
    return left;
  }
  Result<Node> binary(Result<Node> (Parser::*operand)(), Names operators) {
    return chain(
        Kind::kBinary, [&] { return (this->*operand)(); },
        [&] { return now().kind == Is::kOperator && is_one_of(now().text, operators); });
  }
  Result<Node> disjunction() {
    return chain(
        Kind::kOr, [&] { return conjunction(); }, [&] { return sees_name("or"); });
  }
  Result<Node> conjunction() {
    return chain(
        Kind::kAnd, [&] { return negation(); }, [&] { return sees_name("and"); });
  }
  Result<Node> negation() {
    if (!sees_name("not")) return comparison();
    TEGULA_JINJA_LEVEL;
    const int line = next().line;
    return make(Kind::kUnary, line, nodes(TEGULA_TRY(negation())), "not");
  }
  static std::vector<Node> nodes(Node one) {
    std::vector<Node> all;
    all.push_back(std::move(one));
    return all;
  }

  Result<Node> comparison() {
    const int line = now().line;
    std::vector<Node> parts = nodes(TEGULA_TRY(sum()));
    for (;;) {
      std::string op = now().text;
      const bool is_not_in =
          sees_name("not") && tokens_[at_ + 1].kind == Is::kName && tokens_[at_ + 1].text == "in";
      const bool is_operator =
          now().kind == Is::kOperator && is_one_of(op, {"==", "!=", "<", "<=", ">", ">="});
      if (!is_not_in && !is_operator && !sees_name("in")) break;
      if (is_not_in) next(), op = "not in";
      next();
      Node right = TEGULA_TRY(sum());
      parts.push_back(TEGULA_TRY(make(Kind::kOperand, line, nodes(std::move(right)), op)));
    }
    if (parts.size() == 1) return std::move(parts[0]);
    return make(Kind::kCompare, line, std::move(parts));
  }
  Result<Node> sum() { return binary(&Parser::joined, {"+", "-"}); }
  Result<Node> joined() {
    const int line = now().line;
    std::vector<Node> parts = nodes(TEGULA_TRY(product()));
    while (skip_op("~")) parts.push_back(TEGULA_TRY(product()));
    if (parts.size() == 1) return std::move(parts[0]);
    return make(Kind::kConcat, line, std::move(parts));
  }
  Result<Node> product() { return binary(&Parser::power, {"*", "/", "//", "%"}); }
  Result<Node> power() { return binary(&Parser::filtered, {"**"}); }
  Result<Node> filtered() { return unary(true); }

  Result<Node> unary(bool has_filters) {
    TEGULA_JINJA_LEVEL;
    Node n;
    if (sees_op("-") || sees_op("+")) {
      const Token& op = next();
      n = TEGULA_TRY(make(Kind::kUnary, op.line, nodes(TEGULA_TRY(unary(false))), op.text));
    } else {
      n = TEGULA_TRY(primary());
    }
    n = TEGULA_TRY(postfix(std::move(n)));
    while (has_filters) {
      const int line = now().line;
      if (skip_op("|"))
        n = TEGULA_TRY(filter(std::move(n)));
      else if (skip_name("is"))
        n = TEGULA_TRY(test(std::move(n), line));
      else if (sees_op("("))
        n = TEGULA_TRY(call(std::move(n)));
      else
        break;
    }
    return n;
  }

  Result<Node> primary() {
    const Token& t = now();
    const int line = t.line;
    if (t.kind == Is::kName) {
      next();
      if (is_one_of(t.text, {"true", "True", "false", "False"}))
        return constant(Value(t.text == "true" || t.text == "True"), line);
      if (is_one_of(t.text, {"none", "None"})) return constant(Value::none(), line);
      if (macros_ > 0 && is_one_of(t.text, {"varargs", "kwargs"}))
        return unsupported(cat("line ", line, ": a macro's ", t.text));
      return make(Kind::kName, line, {}, t.text);
    }
    if (t.kind == Is::kString) {
      std::string text;
      while (now().kind == Is::kString) text += next().text;
      return constant(Value(std::move(text)), line);
    }
    if (t.kind == Is::kInteger || t.kind == Is::kFloat) return next(), number(t);
    if (skip_op("(")) {
      Node n = TEGULA_TRY(tuple(true, true));
      TEGULA_TRY(expect_op(")"));
      return n;
    }
    if (skip_op("[")) return make(Kind::kList, line, TEGULA_TRY(items("]", false)));
    if (skip_op("{")) return make(Kind::kDict, line, TEGULA_TRY(items("}", true)));
    return wrong(cat("unexpected ", shown()));
  }

  Result<Node> number(const Token& t) {
    const char* begin = t.text.data();
    const char* end = begin + t.text.size();
    if (t.kind == Is::kFloat) {
      double x = 0;
      const auto read = std::from_chars(begin, end, x);
      if (read.ec == std::errc::result_out_of_range)
        return unsupported(cat("line ", t.line, ": the number ", t.text));
      return constant(Value(x), t.line);
    }
    int64_t x = 0;
    const char of = t.text.size() > 1 ? static_cast<char>(t.text[1] | 32) : ' ';
    const int base = of == 'x' ? 16 : of == 'o' ? 8 : of == 'b' ? 2 : 10;
    const auto read = std::from_chars(begin + (base == 10 ? 0 : 2), end, x, base);
    if (read.ec != std::errc() || read.ptr != end)
      return unsupported(cat("line ", t.line, ": the number ", t.text));
    return constant(Value(x), t.line);
  }

  Result<std::vector<Node>> items(std::string_view end, bool are_pairs) {
    std::vector<Node> all;
    while (!sees_op(end)) {
      if (!all.empty()) TEGULA_TRY(expect_op(","));
      if (sees_op(end)) break;
      all.push_back(TEGULA_TRY(expression()));
      if (!are_pairs) continue;
      TEGULA_TRY(expect_op(":"));
      all.push_back(TEGULA_TRY(expression()));
    }
    next();
    return all;
  }

  Result<Node> postfix(Node n) {
    for (;;) {
      const int line = now().line;
      if (sees_op("(")) {
        n = TEGULA_TRY(call(std::move(n)));
      } else if (skip_op("[")) {
        Node key = TEGULA_TRY(subscript());
        if (sees_op(",")) return unsupported(cat("line ", line, ": several subscripts at once"));
        TEGULA_TRY(expect_op("]"));
        n = TEGULA_TRY(make_of(Kind::kItem, line, std::move(n), std::move(key)));
      } else if (skip_op(".")) {
        const Token& t = next();
        if (t.kind == Is::kInteger)
          n = TEGULA_TRY(make_of(Kind::kItem, line, std::move(n), TEGULA_TRY(number(t))));
        else if (t.kind == Is::kName)
          n = TEGULA_TRY(make(Kind::kAttribute, line, nodes(std::move(n)), t.text));
        else
          return wrong("expected a name or a number behind '.'");
      } else {
        return n;
      }
    }
  }

  // x, or from:to:step of which each may be left out.
  Result<Node> subscript() {
    const int line = now().line;
    std::vector<Node> parts;
    if (!sees_op(":")) {
      Node n = TEGULA_TRY(expression());
      if (!sees_op(":")) return n;
      parts.push_back(std::move(n));
    } else {
      parts.push_back(TEGULA_TRY(make(Kind::kNothing, line)));
    }
    for (int i = 0; i < 2; ++i) {
      const bool is_given = skip_op(":") && !sees_op(":") && !sees_op("]") && !sees_op(",");
      parts.push_back(TEGULA_TRY(is_given ? expression() : make(Kind::kNothing, line)));
    }
    return make(Kind::kSlice, line, std::move(parts));
  }

  // The operand in front of the arguments is the first part.
  Result<Node> arguments(Kind kind, int line, Node first, std::string name) {
    std::vector<Node> all = nodes(std::move(first));
    bool has_keywords = false;
    while (!sees_op(")")) {
      if (sees_op("*") || sees_op("**")) {
        const std::string star = next().text;
        all.push_back(
            TEGULA_TRY(make(Kind::kKeyword, line, nodes(TEGULA_TRY(expression())), star)));
        has_keywords = true;
      } else if (now().kind == Is::kName && tokens_[at_ + 1].kind == Is::kOperator &&
                 tokens_[at_ + 1].text == "=") {
        std::string key = next().text;
        next();
        Node value = TEGULA_TRY(expression());
        all.push_back(
            TEGULA_TRY(make(Kind::kKeyword, line, nodes(std::move(value)), std::move(key))));
        has_keywords = true;
      } else {
        if (has_keywords) return wrong("an argument without a name stands behind one with a name");
        all.push_back(TEGULA_TRY(expression()));
      }
      if (!skip_op(",") && !sees_op(")")) return wrong(cat("expected ',' or ')', not ", shown()));
    }
    next();
    return make(kind, line, std::move(all), std::move(name));
  }
  Result<Node> call(Node what) {
    const int line = next().line;
    return arguments(Kind::kCall, line, std::move(what), "");
  }

  // Behind `|`: a filter, and those that follow it in a block's tag.
  Result<Node> filter(Node of) {
    do {
      const int line = now().line;
      std::string its = TEGULA_TRY(name());
      if (sees_op("(")) {
        next();
        of = TEGULA_TRY(arguments(Kind::kFilter, line, std::move(of), std::move(its)));
      } else {
        of = TEGULA_TRY(make(Kind::kFilter, line, nodes(std::move(of)), std::move(its)));
      }
    } while (skip_op("|"));
    return of;
  }

  Result<Node> test(Node of, int line) {
    const bool is_not = skip_name("not");
    std::string its = TEGULA_TRY(name());
    Node n;
    const Token& t = now();
    const bool has_operand = t.kind == Is::kString || t.kind == Is::kInteger ||
                             t.kind == Is::kFloat ||
                             (t.kind == Is::kOperator && is_one_of(t.text, {"[", "{"})) ||
                             (t.kind == Is::kName && !is_one_of(t.text, {"else", "or", "and"}));
    if (skip_op("(")) {
      n = TEGULA_TRY(arguments(Kind::kTest, line, std::move(of), std::move(its)));
    } else if (has_operand) {
      if (sees_name("is")) return wrong("tests cannot be chained with 'is'");
      Node operand = TEGULA_TRY(postfix(TEGULA_TRY(primary())));
      n = TEGULA_TRY(make_of(Kind::kTest, line, std::move(of), std::move(operand)));
      n.name = std::move(its);
    } else {
      n = TEGULA_TRY(make(Kind::kTest, line, nodes(std::move(of)), std::move(its)));
    }
    if (!is_not) return n;
    return make(Kind::kUnary, line, nodes(std::move(n)), "not");
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0, loops_ = 0, macros_ = 0;
};

}  // namespace

Result<Node> parse_template(std::string_view source) {
  return Parser(TEGULA_TRY(read_tokens(source))).read();
}

}  // namespace tegula::jinja
