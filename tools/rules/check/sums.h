// The checker's own polynomials and sums of terms.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tegula/base/result.h"

namespace tegula::rulecheck {

using Name = std::string;

struct Poly {
  std::map<std::vector<Name>, int64_t> terms;  // sorted names to coefficients, none 0
  bool is_bad = false;  // a coefficient left 64 bits, or too many terms: equal to nothing

  Poly(int64_t c = 0) { add({}, c); }
  static Poly of(const Name& name);
  void add(const std::vector<Name>& names, int64_t c);
  bool operator==(const Poly& o) const { return !is_bad && !o.is_bad && terms == o.terms; }
  bool has(const Name& name) const;
  Poly replaced(const Name& name, const Poly& by) const;
};
Poly operator+(Poly a, const Poly& b);
Poly operator*(const Poly& a, const Poly& b);
Poly operator-(const Poly& a, const Poly& b);
// From the front of the text, which is shortened.
Result<Poly> read_poly(std::string_view& text);

struct Fact {  // p ≥ 0, or = 0
  Poly p;
  bool is_zero = false;
  bool operator==(const Fact&) const = default;
};

struct Term;
struct Part {  // of a function: an operand, or the values of a domain
  std::vector<Name> bound;
  std::vector<Fact> guards;
  std::vector<Term> sum;
};
struct Factor {
  Name name;
  std::vector<Poly> index;
  std::vector<Part> parts;  // empty: an element of an input
};
struct Term {
  Poly coefficient = 1;
  std::vector<Name> bound;
  std::vector<Fact> guards;
  std::vector<Factor> factors;
};

struct Expression {  // of a program
  Name head;         // kind, function, or input where it is no call
  bool is_call = false, is_function = false;
  std::vector<Expression> operands;
  std::map<Name, std::vector<Poly>> attrs;
  std::map<Name, std::string> words;
};

struct Rule {
  Name name;
  std::vector<Name> sizes, integers, scalars, functions;
  std::map<Name, std::vector<Poly>> inputs;
  std::vector<Fact> where;
  std::vector<Expression> left, right;  // one each
  std::vector<std::string> steps;
  bool has_proof = false;
};
Result<std::vector<Rule>> read_rules(std::string_view text, std::string_view file);

// The meaning of a program: extents, its sum at i0, i1, …, and what its ops need to be valid.
struct Meaning {
  std::vector<Poly> shape;
  std::vector<Term> sum;
  std::vector<Fact> needs;
};
Result<Meaning> meaning_of(const Rule& rule, const Expression& e);

}  // namespace tegula::rulecheck
