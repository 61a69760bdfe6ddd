#include "tegula/base/algorithm.h"
#include "tegula/base/text.h"
#include "tegula/passes/superopt/program.h"

namespace tegula::superopt {

namespace {
using Text = std::string_view;

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}
// A name, or nothing.
Text take_word(Text& t) {
  skip_spaces(t);
  size_t n = 0;
  while (n < t.size() && is_word(t[n])) ++n;
  const Text word = t.substr(0, n);
  t.remove_prefix(n);
  return word;
}

struct Parser {
  Rule rule;

  // Symbols of indices and loops are the prover's: i0, r1, z2.
  static bool is_free(Text name) {
    const bool is_reserved = name.size() > 1 &&
                             (name[0] == 'i' || name[0] == 'r' || name[0] == 'z') &&
                             name.find_first_not_of("0123456789", 1) == Text::npos;
    return !name.empty() && name.size() <= 8 && !is_reserved && !(name[0] >= '0' && name[0] <= '9');
  }
  bool knows(Symbol s) const {
    for (const auto* all : {&rule.sizes, &rule.integers, &rule.scalars})
      if (std::find(all->begin(), all->end(), s) != all->end()) return true;
    return false;
  }

  Result<Poly> poly(Text& t, bool may_have_scalars) const {
    Poly p = TEGULA_TRY(parse_poly(t));
    if (!p.is_exact()) return invalid_argument("a polynomial's coefficients leave 64 bits");
    for (const Symbol s : p.symbols()) {
      const bool is_scalar =
          std::find(rule.scalars.begin(), rule.scalars.end(), s) != rule.scalars.end();
      if (!knows(s) || (is_scalar && !may_have_scalars))
        return invalid_argument(cat("'", s.name(), "' is ", is_scalar ? "a scalar" : "not declared",
                                    ": sizes, integers and scalars come before their use"));
    }
    return p;
  }
  Result<std::vector<Poly>> list(Text& t, bool may_have_scalars) const {
    std::vector<Poly> all;
    while (!take(t, ']')) {
      if (!all.empty() && !take(t, ','))
        return invalid_argument(cat("expected , or ] before '", t, "'"));
      all.push_back(TEGULA_TRY(poly(t, may_have_scalars)));
      if (all.size() > 8) return invalid_argument("a list has more than 8 entries");
    }
    return all;
  }

  Status declare(Text t, std::vector<Symbol>& into) {
    while (skip_spaces(t), !t.empty()) {
      const Text name = take_word(t);
      if (!is_free(name) || knows(Symbol(name)))
        return invalid_argument(cat("'", name.empty() ? t : name,
                                    "' is no new name of 1 to 8 letters "
                                    "and digits (i0, r0 and z0 are the prover's)"));
      into.emplace_back(name);
      if (&into == &rule.sizes) rule.where.push_back({Poly(into.back()) - 1});
    }
    return {};
  }
  Status inputs(Text t) {
    while (skip_spaces(t), !t.empty()) {
      const Text name = take_word(t);
      if (!is_free(name) || !take(t, '['))
        return invalid_argument(cat("inputs are name[size,…], found '", name, t, "'"));
      for (const Input& x : rule.graph.inputs)
        if (x.name == name) return invalid_argument(cat("two inputs are named ", name));
      if (rule.graph.nodes.size() > rule.graph.inputs.size() || rule.graph.inputs.size() >= 8)
        return invalid_argument("inputs come before left and right, and are at most 8");
      rule.graph.add_input(std::string(name), TEGULA_TRY(list(t, false)));
    }
    return {};
  }
  // p >= q, p <= q, p == q.
  Status where(Text t) {
    const Poly p = TEGULA_TRY(poly(t, false));
    skip_spaces(t);
    const Text sign = t.substr(0, 2);
    if (sign != ">=" && sign != "<=" && sign != "==")
      return invalid_argument(cat("expected >=, <= or == before '", t, "'"));
    t.remove_prefix(2);
    const Poly q = TEGULA_TRY(poly(t, false));
    rule.where.push_back({sign == "<=" ? q - p : p - q, sign == "=="});
    return ends(t);
  }
  static Status ends(Text t) {
    skip_spaces(t);
    return t.empty() ? Status() : Status(invalid_argument(cat("'", t, "' is left over")));
  }

  Result<int> term(Text& t, int depth) {
    const std::string name(take_word(t));
    if (name.empty()) return invalid_argument(cat("expected a name before '", t, "'"));
    if (!take(t, '(')) {
      for (size_t n = 0; n < rule.graph.inputs.size(); ++n)
        if (rule.graph.inputs[n].name == name) return static_cast<int>(n);
      return invalid_argument(cat("no input is named ", name));
    }
    if (depth > 32 || rule.graph.nodes.size() > 64)
      return invalid_argument("a program has at most 64 nodes, 32 deep");
    std::vector<int> in;
    KindAttrs attrs;
    for (bool first = true; !take(t, ')'); first = false) {
      if (!first && !take(t, ',')) return invalid_argument(cat("expected , or ) before '", t, "'"));
      Text ahead = t;
      const std::string word(take_word(ahead));
      if (take(ahead, '='))
        t = ahead, TEGULA_TRY(attribute(t, word, attrs));
      else
        in.push_back(TEGULA_TRY(term(t, depth + 1)));
    }
    const auto& fs = rule.functions;
    if (std::find(fs.begin(), fs.end(), name) == fs.end())
      return rule.graph.add(name, std::move(in), std::move(attrs));
    if (in.empty() || !attrs.polys.empty() || !attrs.words.empty())
      return invalid_argument(cat(name, ": a function has operands and no attributes"));
    attrs.words["name"] = name;
    return rule.graph.add("function", std::move(in), std::move(attrs));
  }
  Status attribute(Text& t, const std::string& name, KindAttrs& attrs) const {
    if (attrs.has(name)) return invalid_argument(cat("attribute ", name, " stands twice"));
    if (take(t, '"')) {
      const size_t n = t.find('"');
      if (n == Text::npos) return invalid_argument("a text has no end");
      attrs.words[name] = std::string(t.substr(0, n));
      t.remove_prefix(n + 1);
    } else if (take(t, '[')) {
      attrs.polys[name] = TEGULA_TRY(list(t, true));
    } else {
      attrs.polys[name] = {TEGULA_TRY(poly(t, true))};
    }
    return {};
  }

  Status side(Text t, int& node) {
    if (node >= 0) return invalid_argument("a rule has one left and one right side");
    node = TEGULA_TRY(term(t, 0));
    return ends(t);
  }
  Status statement(Text key, Text t) {
    if (key == "sizes") return declare(t, rule.sizes);
    if (key == "integers") return declare(t, rule.integers);
    if (key == "scalars") return declare(t, rule.scalars);
    if (key == "inputs") return inputs(t);
    if (key == "where") return where(t);
    if (key == "left") return side(t, rule.left);
    if (key == "right") return side(t, rule.right);
    if (key == "functions") {
      while (skip_spaces(t), !t.empty()) {
        const Text name = take_word(t);
        if (name.empty() || find_kind(name))
          return invalid_argument(cat("'", name, t, "' is no name for a function"));
        rule.functions.emplace_back(name);
      }
      return {};
    }
    if (key == "class" || key == "note") {
      skip_spaces(t);
      rule.notes[std::string(key)] = std::string(t);
      return {};
    }
    return invalid_argument(cat("no statement is named '", key, "'"));
  }
};

Status check_whole(const Rule& r) {
  if (r.left < 0 || r.right < 0) return invalid_argument("it lacks left or right");
  const auto shape = [&](int n) { return r.graph.nodes[static_cast<size_t>(n)].shape; };
  if (shape(r.left).size() != shape(r.right).size())
    return invalid_argument(
        cat("left has rank ", shape(r.left).size(), ", right ", shape(r.right).size()));
  return {};
}
}  // namespace

std::string Rule::text() const {
  std::string out = cat("rule ", name, "\n");
  auto line = [&](std::string_view key, const auto& all, auto&& text_of) {
    if (all.empty()) return;
    out += key;
    for (const auto& one : all) out += cat(" ", text_of(one));
    out += "\n";
  };
  const auto name_of = [](Symbol s) { return s.name(); };
  for (const auto& [key, value] : notes) out += cat(key, " ", value, "\n");
  line("sizes", sizes, name_of);
  line("integers", integers, name_of);
  line("scalars", scalars, name_of);
  line("functions", functions, [](const std::string& f) { return f; });
  line("inputs", graph.inputs, [](const Input& x) {
    std::string t = x.name + "[";
    for (size_t d = 0; d < x.shape.size(); ++d) t += cat(d > 0 ? "," : "", x.shape[d].text());
    return t + "]";
  });
  for (size_t k = sizes.size(); k < where.size(); ++k) out += cat("where ", where[k].text(), "\n");
  out += cat("left ", graph.text(left), "\nright ", graph.text(right), "\n");
  if (!has_proof) return out;
  out += "proof\n";
  for (const std::string& step : proof) out += cat("  ", step, "\n");
  return out + "end\n";
}

Result<std::vector<Rule>> parse_rules(Text text, Text file) {
  std::vector<Rule> rules;
  Parser parser;
  bool is_open = false, in_proof = false;
  int64_t number = 0;
  auto fail = [&](const std::string& why) {
    return invalid_argument(
        cat(file, ":", number, ": ", is_open ? cat("rule ", parser.rule.name, ": ") : "", why));
  };
  auto close = [&]() -> Status {
    if (!is_open) return {};
    TEGULA_TRY(check_whole(parser.rule));
    rules.push_back(std::exchange(parser.rule, {}));
    is_open = false;
    return {};
  };
  while (!text.empty()) {
    Text line = take_until('\n', text);
    line = line.substr(0, line.find('#'));
    ++number;
    while (!line.empty() && (line.back() == ' ' || line.back() == '\r' || line.back() == '\t'))
      line.remove_suffix(1);
    skip_spaces(line);
    if (line.empty()) continue;
    if (in_proof) {
      in_proof = line != "end";
      if (in_proof) parser.rule.proof.emplace_back(line);
      continue;
    }
    const Text key = take_word(line);
    if (key == "rule") {
      if (const Status s = close(); !s.ok()) return fail(s.error().message);
      parser.rule.left = parser.rule.right = -1;
      is_open = true;
      skip_spaces(line);
      parser.rule.name = std::string(line);
      if (line.empty() || line.find(' ') != Text::npos) return fail("a rule's name is one word");
    } else if (!is_open) {
      return fail(cat("expected 'rule NAME', found '", key, line, "'"));
    } else if (key == "proof" && line.empty()) {
      in_proof = parser.rule.has_proof = true;
    } else if (const Status s = parser.statement(key, line); !s.ok()) {
      return fail(s.error().message);
    }
  }
  if (in_proof) return fail("the proof has no line 'end'");
  if (const Status s = close(); !s.ok()) return fail(s.error().message);
  return rules;
}

}  // namespace tegula::superopt
