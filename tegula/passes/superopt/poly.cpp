#include "tegula/passes/superopt/poly.h"

#include "tegula/base/algorithm.h"

namespace tegula::superopt {

Symbol::Symbol(std::string_view stem, int64_t number) : Symbol(cat(stem, number)) {}

std::string Symbol::name() const {
  std::string out;
  for (int shift = 56; shift >= 0; shift -= 8)
    if (const char c = static_cast<char>(word_ >> shift & 0xff)) out += c;
  return out;
}

Poly::Poly(int64_t constant) {
  if (constant != 0) terms_.push_back({{}, constant});
}
Poly::Poly(Symbol symbol) : terms_{{{symbol}, 1}} {}

void Poly::add(const Monomial& monomial, int64_t coefficient) {
  const auto at = std::lower_bound(terms_.begin(), terms_.end(), monomial,
                                   [](const auto& t, const Monomial& m) { return t.first < m; });
  if (at == terms_.end() || at->first != monomial)
    terms_.insert(at, {monomial, coefficient});
  else if (__builtin_add_overflow(at->second, coefficient, &at->second))
    is_exact_ = false;
}

void Poly::tidy() {
  terms_.erase(
      std::remove_if(terms_.begin(), terms_.end(), [](const auto& t) { return t.second == 0; }),
      terms_.end());
}

Poly Poly::operator+(const Poly& o) const {
  Poly sum = *this;
  sum.is_exact_ = is_exact_ && o.is_exact_;
  for (const auto& [m, c] : o.terms_) sum.add(m, c);
  sum.tidy();
  return sum;
}

Poly Poly::operator-(const Poly& o) const { return *this + o * Poly(-1); }

Poly Poly::operator*(const Poly& o) const {
  Poly product;
  product.is_exact_ = is_exact_ && o.is_exact_;
  for (const auto& [m, c] : terms_)
    for (const auto& [n, d] : o.terms_) {
      Monomial both(m.size() + n.size());
      std::merge(m.begin(), m.end(), n.begin(), n.end(), both.begin());
      int64_t coefficient = 0;
      if (__builtin_mul_overflow(c, d, &coefficient)) product.is_exact_ = false;
      product.add(both, coefficient);
    }
  product.tidy();
  return product;
}

bool Poly::operator==(const Poly& o) const {
  return is_exact_ && o.is_exact_ && terms_ == o.terms_;
}
std::strong_ordering Poly::operator<=>(const Poly& o) const { return terms_ <=> o.terms_; }

bool Poly::is_const() const {
  return is_exact_ && (terms_.empty() || (terms_.size() == 1 && terms_[0].first.empty()));
}
int64_t Poly::constant() const {
  return !terms_.empty() && terms_[0].first.empty() ? terms_[0].second : 0;
}

bool Poly::has(Symbol s) const {
  for (const auto& [m, c] : terms_)
    if (std::find(m.begin(), m.end(), s) != m.end()) return true;
  return false;
}

bool Poly::is_affine_in(Symbol s) const {
  return std::all_of(terms_.begin(), terms_.end(), [s](const auto& t) {
    return std::count(t.first.begin(), t.first.end(), s) <= 1;
  });
}

Poly Poly::factor_of(Symbol s) const {
  Poly factor;
  for (const auto& [m, c] : terms_)
    if (const auto at = std::find(m.begin(), m.end(), s); at != m.end()) {
      Monomial rest = m;
      rest.erase(rest.begin() + (at - m.begin()));
      factor.add(rest, c);
    }
  return factor;
}

Poly Poly::substitute(std::span<const std::pair<Symbol, Poly>> by) const {
  Poly out;
  out.is_exact_ = is_exact_;
  for (const auto& [m, c] : terms_) {
    Poly product(c);
    for (const Symbol s : m) {
      const auto at =
          std::find_if(by.begin(), by.end(), [&](const auto& pair) { return pair.first == s; });
      product = product * (at == by.end() ? Poly(s) : at->second);
    }
    out += product;
  }
  return out;
}
Poly Poly::substitute(Symbol s, const Poly& by) const {
  if (!has(s)) return *this;
  const std::pair<Symbol, Poly> one(s, by);
  return substitute({&one, 1});
}

std::vector<Symbol> Poly::symbols() const {
  std::vector<Symbol> all;
  for (const auto& [m, c] : terms_) all.insert(all.end(), m.begin(), m.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

std::string Poly::text() const {
  if (!is_exact_) return "overflow";
  if (terms_.empty()) return "0";
  std::string out;
  for (const bool want_const : {false, true})
    for (const auto& [m, c] : terms_) {
      if (m.empty() != want_const) continue;
      const uint64_t size = c < 0 ? 0 - static_cast<uint64_t>(c) : static_cast<uint64_t>(c);
      out += out.empty() ? (c < 0 ? "-" : "") : (c < 0 ? " - " : " + ");
      if (m.empty() || size != 1) out += cat(size);
      for (size_t i = 0; i < m.size(); ++i) out += (i > 0 || size != 1 ? "*" : "") + m[i].name();
    }
  return out;
}

void skip_spaces(std::string_view& text) {
  while (!text.empty() && (text[0] == ' ' || text[0] == '\t')) text.remove_prefix(1);
}
bool take(std::string_view& text, char c) {
  skip_spaces(text);
  if (text.empty() || text[0] != c) return false;
  text.remove_prefix(1);
  return true;
}

namespace {
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

Result<Poly> parse_product(std::string_view& text, int depth);

Result<Poly> parse_sum(std::string_view& text, int depth) {
  if (depth > 32) return invalid_argument("parentheses nest deeper than 32");
  Poly sum = take(text, '-') ? -TEGULA_TRY(parse_product(text, depth))
                             : TEGULA_TRY(parse_product(text, depth));
  while (true) {
    if (take(text, '+'))
      sum += TEGULA_TRY(parse_product(text, depth));
    else if (take(text, '-'))
      sum = sum - TEGULA_TRY(parse_product(text, depth));
    else
      return sum;
  }
}

Result<Poly> parse_atom(std::string_view& text, int depth) {
  skip_spaces(text);
  if (take(text, '(')) {
    Poly inner = TEGULA_TRY(parse_sum(text, depth + 1));
    if (!take(text, ')')) return invalid_argument(cat("expected ) before '", text, "'"));
    return inner;
  }
  size_t n = 0;
  if (!text.empty() && is_digit(text[0])) {
    int64_t value = 0;
    for (; n < text.size() && is_digit(text[n]); ++n) {
      value = value * 10 + (text[n] - '0');
      if (value > 1'000'000'000) return invalid_argument("an integer is more than 1000000000");
    }
    text.remove_prefix(n);
    return Poly(value);
  }
  while (n < text.size() && (is_letter(text[n]) || (n > 0 && is_digit(text[n])))) ++n;
  if (n == 0 || n > 8)
    return invalid_argument(
        cat("expected an integer or a name of at most 8 characters before '", text, "'"));
  const Symbol symbol(text.substr(0, n));
  text.remove_prefix(n);
  return Poly(symbol);
}

Result<Poly> parse_product(std::string_view& text, int depth) {
  Poly product = TEGULA_TRY(parse_atom(text, depth));
  while (take(text, '*')) {
    product = product * TEGULA_TRY(parse_atom(text, depth));
    for (const auto& [m, c] : product.terms())
      if (m.size() > 6 || product.terms().size() > 50)
        return invalid_argument("a product has more than 6 factors or 50 terms");
  }
  return product;
}
}  // namespace

Result<Poly> parse_poly(std::string_view& text) { return parse_sum(text, 0); }

std::optional<Poly> divided(const Poly& p, const Poly& by) {
  if (by.terms().size() != 1) return {};
  const auto& [factors, number] = by.terms()[0];
  Poly out;
  for (const auto& [monomial, coefficient] : p.terms()) {
    Monomial left;
    std::set_difference(monomial.begin(), monomial.end(), factors.begin(), factors.end(),
                        std::back_inserter(left));
    if (coefficient % number != 0 || left.size() + factors.size() != monomial.size()) return {};
    Poly term = coefficient / number;
    for (const Symbol s : left) term = term * Poly(s);
    out += term;
  }
  return out;
}

}  // namespace tegula::superopt
