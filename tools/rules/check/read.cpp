#include "tegula/base/algorithm.h"
#include "tools/rules/check/sums.h"

namespace tegula::rulecheck {

Poly Poly::of(const Name& name) {
  Poly p;
  p.add({name}, 1);
  return p;
}
void Poly::add(const std::vector<Name>& names, int64_t c) {
  int64_t& at = terms[names];
  if (__builtin_add_overflow(at, c, &at)) is_bad = true;
  if (at == 0) terms.erase(names);
}
bool Poly::has(const Name& name) const {
  for (const auto& [names, c] : terms)
    if (std::find(names.begin(), names.end(), name) != names.end()) return true;
  return false;
}
Poly operator+(Poly a, const Poly& b) {
  for (const auto& [names, c] : b.terms) a.add(names, c);
  a.is_bad = a.is_bad || b.is_bad;
  return a;
}
Poly operator*(const Poly& a, const Poly& b) {
  Poly p;
  p.is_bad = a.is_bad || b.is_bad;
  constexpr size_t kMostTerms = 1000, kMostNames = 12;
  for (const auto& [m, c] : a.terms)
    for (const auto& [n, d] : b.terms) {
      if (p.terms.size() > kMostTerms || m.size() + n.size() > kMostNames)
        return p.is_bad = true, p;
      std::vector<Name> both = m;
      both.insert(both.end(), n.begin(), n.end());
      std::sort(both.begin(), both.end());
      int64_t times = 0;
      if (__builtin_mul_overflow(c, d, &times)) p.is_bad = true;
      p.add(both, times);
    }
  return p;
}
Poly operator-(const Poly& a, const Poly& b) { return a + Poly(-1) * b; }
Poly Poly::replaced(const Name& name, const Poly& by) const {
  Poly p;
  p.is_bad = is_bad;
  for (const auto& [names, c] : terms) {
    Poly product(c);
    for (const Name& n : names) product = product * (n == name ? by : of(n));
    p = p + product;
  }
  return p;
}

namespace {
using Text = std::string_view;
constexpr Text kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";

bool eat(Text& t, Text what) {
  t.remove_prefix(std::min(t.find_first_not_of(" \t"), t.size()));
  if (!t.starts_with(what)) return false;
  return t.remove_prefix(what.size()), true;
}
Name word(Text& t) {
  eat(t, "");
  const Name w(t.substr(0, t.find_first_not_of(kLetters)));
  return t.remove_prefix(w.size()), w;
}

Result<Poly> sum(Text& t, int depth);
Result<Poly> atom(Text& t, int depth) {
  if (eat(t, "(")) {
    const Poly p = TEGULA_TRY(sum(t, depth + 1));
    return eat(t, ")") ? Result<Poly>(p) : invalid_argument(cat("expected ) at '", t, "'"));
  }
  const Name w = word(t);
  if (w.empty() || w.size() > 18)
    return invalid_argument(cat("expected a number or name at '", t, "'"));
  if (w.find_first_not_of("0123456789") != Name::npos) return Poly::of(w);
  int64_t value = 0;
  for (const char c : w) value = value * 10 + (c - '0');
  return Poly(value);
}
Result<Poly> sum(Text& t, int depth) {
  if (depth > 32) return invalid_argument("parentheses nest deeper than 32");
  Poly all;
  for (bool first = true;; first = false) {
    const bool is_minus = eat(t, "-");
    if (!is_minus && !eat(t, "+") && !first) return all;
    Poly product = TEGULA_TRY(atom(t, depth));
    while (eat(t, "*")) {
      product = product * TEGULA_TRY(atom(t, depth));
      if (product.terms.size() > 50) return invalid_argument("a product has more than 50 terms");
    }
    all = is_minus ? all - product : all + product;
  }
}

struct Reader {
  Rule& rule;

  bool has(const std::vector<Name>& all, const Name& n) const {
    return std::find(all.begin(), all.end(), n) != all.end();
  }
  Result<Poly> poly(Text& t, bool with_scalars) const {
    const Poly p = TEGULA_TRY(sum(t, 0));
    for (const auto& [names, c] : p.terms)
      for (const Name& n : names)
        if (!has(rule.sizes, n) && !has(rule.integers, n) &&
            !(with_scalars && has(rule.scalars, n)))
          return invalid_argument(cat("'", n, "' is not declared, or a scalar"));
    return p;
  }
  Result<std::vector<Poly>> list(Text& t, bool with_scalars) const {
    std::vector<Poly> all;
    while (!eat(t, "]")) {
      if (!all.empty() && !eat(t, ","))
        return invalid_argument(cat("expected , or ] at '", t, "'"));
      all.push_back(TEGULA_TRY(poly(t, with_scalars)));
    }
    return all;
  }
  Result<Expression> expression(Text& t, int depth) const {
    Expression e;
    e.head = word(t);
    e.is_call = eat(t, "(");
    e.is_function = e.is_call && has(rule.functions, e.head);
    if (e.head.empty() || depth > 32) return invalid_argument(cat("no program at '", t, "'"));
    for (bool first = true; e.is_call && !eat(t, ")"); first = false) {
      if (!first && !eat(t, ",")) return invalid_argument(cat("expected , or ) at '", t, "'"));
      Text ahead = t;
      const Name key = word(ahead);
      if (!eat(ahead, "=")) {
        e.operands.push_back(TEGULA_TRY(expression(t, depth + 1)));
        continue;
      }
      t = ahead;
      if (e.is_function || e.attrs.contains(key) || e.words.contains(key))
        return invalid_argument(cat("attribute ", key, " of ", e.head));
      if (eat(t, "\"")) {
        e.words[key] = std::string(t.substr(0, t.find('"')));
        t.remove_prefix(std::min(t.size(), e.words[key].size() + 1));
      } else if (eat(t, "[")) {
        e.attrs[key] = TEGULA_TRY(list(t, true));
      } else {
        e.attrs[key] = {TEGULA_TRY(poly(t, true))};
      }
    }
    return e;
  }

  Status names(Text& t, std::vector<Name>& into) const {
    while (eat(t, ""), !t.empty()) {
      const Name n = word(t);
      const bool is_index = n.size() > 1 && Text("irz").find(n[0]) != Text::npos &&
                            n.find_first_not_of("0123456789", 1) == Name::npos;
      const bool is_old = has(rule.sizes, n) || has(rule.integers, n) || has(rule.scalars, n);
      if (n.empty() || is_index || is_old || (n[0] >= '0' && n[0] <= '9'))
        return invalid_argument(cat("'", n, t, "' cannot be declared"));
      into.push_back(n);
      if (&into == &rule.sizes) rule.where.push_back({Poly::of(n) - 1});
    }
    return {};
  }
  Status statement(const Name& key, Text& t) const {
    if (key == "sizes") return names(t, rule.sizes);
    if (key == "integers") return names(t, rule.integers);
    if (key == "scalars") return names(t, rule.scalars);
    if (key == "functions") {
      for (Name n = word(t); !n.empty(); n = word(t))
        if (n == "max" || rule.inputs.contains(n))
          return invalid_argument(cat(n, " is no function's name"));
        else
          rule.functions.push_back(n);
    } else if (key == "inputs") {
      for (Name n = word(t); !n.empty(); n = word(t)) {
        if (!eat(t, "[") || rule.inputs.contains(n) || has(rule.functions, n))
          return invalid_argument(cat("input ", n, t));
        rule.inputs[n] = TEGULA_TRY(list(t, false));
      }
    } else if (key == "where") {
      const Poly p = TEGULA_TRY(poly(t, false));
      const bool is_most = eat(t, "<="), is_zero = !is_most && eat(t, "==");
      if (!is_most && !is_zero && !eat(t, ">="))
        return invalid_argument(cat("a condition at '", t, "'"));
      const Poly q = TEGULA_TRY(poly(t, false));
      rule.where.push_back({is_most ? q - p : p - q, is_zero});
    } else if (key == "left" || key == "right") {
      auto& side = key == "left" ? rule.left : rule.right;
      if (!side.empty()) return invalid_argument(cat("a second ", key));
      side.push_back(TEGULA_TRY(expression(t, 0)));
    } else if (key == "class" || key == "note") {
      t = {};
    } else {
      return invalid_argument(cat("no statement is named '", key, "'"));
    }
    eat(t, "");
    return t.empty() ? Status() : Status(invalid_argument(cat("'", t, "' is left over")));
  }
};
}  // namespace

Result<Poly> read_poly(Text& text) { return sum(text, 0); }

Result<std::vector<Rule>> read_rules(Text text, Text file) {
  std::vector<Rule> rules;
  bool in_proof = false;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t n = std::min(text.find('\n'), text.size());
    Text line = text.substr(0, std::min(n, text.find('#')));
    text.remove_prefix(std::min(n + 1, text.size()));
    line = line.substr(0, line.find_last_not_of(" \t\r") + 1);
    if (eat(line, ""), line.empty()) continue;
    if (in_proof) {
      in_proof = line != "end";
      if (in_proof) rules.back().steps.emplace_back(line);
      continue;
    }
    const Name key = word(line);
    if (key == "rule") {
      eat(line, "");
      rules.emplace_back().name = Name(line);
      continue;
    }
    if (rules.empty()) return invalid_argument(cat(file, ":", number, ": expected 'rule NAME'"));
    if (key == "proof" && line.empty()) {
      in_proof = rules.back().has_proof = true;
      continue;
    }
    if (const Status s = Reader{rules.back()}.statement(key, line); !s.ok())
      return invalid_argument(
          cat(file, ":", number, ": rule ", rules.back().name, ": ", s.error().message));
  }
  for (const Rule& r : rules)
    if (r.left.empty() || r.right.empty())
      return invalid_argument(cat(file, ": rule ", r.name, ": it lacks left or right"));
  return rules;
}

}  // namespace tegula::rulecheck
