// Multivariate polynomials with integer coefficients, over the sizes, indices and scalars of a
// rule.
//
// Everything that the prover says of a tensor's place or extent is a Poly: a size such as n1 + n2
// or n1·n2, an index such as stride·i + r − pad, a guard "this ≥ 0". An ir Dim holds one symbol
// only, so it cannot say these. Two polynomials are equal as values exactly when they compare
// equal.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tegula/base/result.h"

namespace tegula::superopt {

// A name of at most eight characters, held in a word: symbols need no table, and their order is
// that of their names.
class Symbol {
 public:
  constexpr Symbol() = default;
  constexpr explicit Symbol(std::string_view name) {
    for (size_t i = 0; i < 8; ++i)
      word_ = word_ << 8 | (i < name.size() ? static_cast<unsigned char>(name[i]) : 0u);
  }
  // The stem and a number: Symbol("r", 3) is r3.
  Symbol(std::string_view stem, int64_t number);
  std::string name() const;
  uint64_t word() const { return word_; }
  auto operator<=>(const Symbol&) const = default;

 private:
  uint64_t word_ = 0;
};

using Monomial = std::vector<Symbol>;  // ascending, a power stands that many times; 1 is empty

class Poly {
 public:
  Poly() = default;
  Poly(int64_t constant);
  Poly(Symbol symbol);

  Poly operator+(const Poly& o) const;
  Poly operator-(const Poly& o) const;
  Poly operator*(const Poly& o) const;
  Poly operator-() const { return Poly(0) - *this; }
  Poly& operator+=(const Poly& o) { return *this = *this + o; }
  // Never where an operation has left 64 bits: such a polynomial equals nothing, not even itself.
  bool operator==(const Poly& o) const;
  std::strong_ordering operator<=>(const Poly& o) const;

  // Terms in ascending order of monomials, none of them zero.
  const std::vector<std::pair<Monomial, int64_t>>& terms() const { return terms_; }
  bool is_exact() const { return is_exact_; }
  bool is_zero() const { return terms_.empty() && is_exact_; }
  bool is_const() const;
  int64_t constant() const;  // the coefficient of 1
  bool has(Symbol s) const;
  // No monomial has a power of it.
  bool is_affine_in(Symbol s) const;
  // p where *this = p·s + q and neither has s; call it where the power of s is at most one.
  Poly factor_of(Symbol s) const;
  // All substitutions at once.
  Poly substitute(std::span<const std::pair<Symbol, Poly>> by) const;
  Poly substitute(Symbol s, const Poly& by) const;
  std::vector<Symbol> symbols() const;

  // The value where `value(symbol)` gives each symbol's, modulo 2^61 − 1 or exactly.
  template <class F>
  auto evaluate(F&& value) const {
    decltype(value(Symbol())) sum(0);
    for (const auto& [monomial, coefficient] : terms_) {
      decltype(sum) product(coefficient);
      for (const Symbol s : monomial) product = product * value(s);
      sum = sum + product;
    }
    return sum;
  }

  // "n1*n2 - 2*k + 1"; parse_poly reads it back.
  std::string text() const;

 private:
  void add(const Monomial& monomial, int64_t coefficient);
  void tidy();
  std::vector<std::pair<Monomial, int64_t>> terms_;
  bool is_exact_ = true;
};

// p / by, where `by` is one product of symbols and a number that divides every term of p.
std::optional<Poly> divided(const Poly& p, const Poly& by);

// Reads sums, differences and products of integers, names and parenthesised polynomials from the
// front of `text`, and takes them away from it. Errors: what stood there instead.
Result<Poly> parse_poly(std::string_view& text);
void skip_spaces(std::string_view& text);
// True: it is what stands there, behind spaces, and is taken away.
bool take(std::string_view& text, char c);

// p ≥ 0, or p = 0.
struct Guard {
  Poly p;
  bool is_zero = false;
  auto operator<=>(const Guard&) const = default;
  bool operator==(const Guard&) const = default;
  std::string text() const { return p.text() + (is_zero ? " == 0" : " >= 0"); }
};

}  // namespace tegula::superopt
