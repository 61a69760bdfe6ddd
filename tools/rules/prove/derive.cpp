// Farkas' lemma: goal ≥ 0 follows from facts h ≥ 0 where goal = Σ λ h + c with λ, c ≥ 0. Over
// polynomials each monomial is a row and each fact, or product of two, a column; phase one of the
// simplex method on exact rationals finds λ, which is the certificate.
#include "tools/rules/prove/derive.h"

#include <numeric>

#include "tegula/base/algorithm.h"

namespace tegula::superopt {

namespace {
__extension__ using Wide = __int128;

Wide gcd(Wide a, Wide b) {
  while (b != 0) a = std::exchange(b, a % b);
  return a < 0 ? -a : a;
}

// Exact; what leaves 62 bits spoils the whole search, which then proves nothing.
struct Rational {
  int64_t num = 0, den = 1;
  bool is_zero() const { return num == 0; }
};
struct Overflow {
  bool happened = false;
  Rational make(Wide num, Wide den) {
    const Wide g = gcd(num, den);
    if (g > 1) num /= g, den /= g;
    if (den < 0) num = -num, den = -den;
    constexpr Wide kMost = Wide{1} << 62;
    if (num > kMost || num < -kMost || den > kMost) return happened = true, Rational{};
    return {static_cast<int64_t>(num), static_cast<int64_t>(den)};
  }
  Rational minus_product(Rational a, Rational b, Rational c) {  // a − b c
    const Rational p = make(Wide{b.num} * c.num, Wide{b.den} * c.den);
    return make(Wide{a.num} * p.den - Wide{p.num} * a.den, Wide{a.den} * p.den);
  }
  Rational quotient(Rational a, Rational b) {
    return make(Wide{a.num} * b.den, Wide{a.den} * b.num);
  }
  static bool less(Rational a, Rational b) { return Wide{a.num} * b.den < Wide{b.num} * a.den; }
};

struct Column {
  std::string name;  // "h3", "h1*h3", or empty for the constant
  Poly p;
  bool is_negated = false;  // of an equality
};

// The tableau of A λ = b, λ ≥ 0 by rows; the basis begins with one artificial variable a row.
class Simplex {
 public:
  Simplex(std::span<const Column> columns, const Poly& goal) : n_(columns.size()) {
    std::vector<Monomial> rows;
    auto note = [&](const Poly& p) {
      for (const auto& [m, c] : p.terms()) rows.push_back(m);
    };
    note(goal);
    for (const Column& c : columns) note(c.p);
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    a_.assign(rows.size(), std::vector<Rational>(n_ + 1));
    auto fill = [&](const Poly& p, size_t column) {
      for (const auto& [m, c] : p.terms())
        a_[static_cast<size_t>(std::lower_bound(rows.begin(), rows.end(), m) - rows.begin())]
          [column]
              .num = c;
    };
    for (size_t j = 0; j < n_; ++j) fill(columns[j].p, j);
    fill(goal, n_);
    for (auto& row : a_)
      if (row[n_].num < 0)
        for (Rational& x : row) x.num = -x.num;
    basis_.assign(a_.size(), SIZE_MAX);
    cost_.assign(n_ + 1, {});
    for (size_t j = 0; j <= n_; ++j)
      for (const auto& row : a_) cost_[j] = overflow_.minus_product(cost_[j], row[j], {1, 1});
  }

  // λ of every column where the system has a solution.
  bool solve(std::vector<Rational>& lambda) {
    for (int step = 0; step < 400 && !overflow_.happened && !cost_[n_].is_zero(); ++step) {
      size_t enter = 0;
      while (enter < n_ && cost_[enter].num >= 0) ++enter;  // Bland: the first, so that it ends
      if (enter == n_) return false;
      size_t leave = SIZE_MAX;
      Rational least;
      for (size_t i = 0; i < a_.size(); ++i) {
        if (a_[i][enter].num <= 0) continue;
        const Rational ratio = overflow_.quotient(a_[i][n_], a_[i][enter]);
        const bool ties = leave != SIZE_MAX && !Overflow::less(ratio, least) &&
                          !Overflow::less(least, ratio) && basis_[i] < basis_[leave];
        if (leave == SIZE_MAX || Overflow::less(ratio, least) || ties) leave = i, least = ratio;
      }
      if (leave == SIZE_MAX) return false;
      pivot(leave, enter);
    }
    if (overflow_.happened || !cost_[n_].is_zero()) return false;
    lambda.assign(n_, {});
    for (size_t i = 0; i < a_.size(); ++i)
      if (basis_[i] != SIZE_MAX) lambda[basis_[i]] = a_[i][n_];
    return true;
  }

 private:
  void pivot(size_t row, size_t column) {
    const Rational by = a_[row][column];
    for (Rational& x : a_[row])
      if (!x.is_zero()) x = overflow_.quotient(x, by);
    auto clear = [&](std::vector<Rational>& other) {
      const Rational times = other[column];
      if (times.is_zero()) return;
      for (size_t j = 0; j <= n_; ++j)
        if (!a_[row][j].is_zero()) other[j] = overflow_.minus_product(other[j], times, a_[row][j]);
    };
    for (size_t i = 0; i < a_.size(); ++i)
      if (i != row) clear(a_[i]);
    clear(cost_);
    basis_[row] = column;
  }

  size_t n_;
  std::vector<std::vector<Rational>> a_;
  std::vector<size_t> basis_;
  std::vector<Rational> cost_;
  Overflow overflow_;
};

std::string certificate(std::span<const Column> columns, std::span<const Rational> lambda) {
  int64_t denominator = 1;
  for (const Rational& l : lambda) {
    const int64_t times = l.den / std::gcd(denominator, l.den);
    if (__builtin_mul_overflow(denominator, times, &denominator)) return "";
  }
  std::string sum;
  for (size_t j = 0; j < columns.size(); ++j) {
    if (lambda[j].is_zero()) continue;
    int64_t times = 0;
    if (__builtin_mul_overflow(lambda[j].num, denominator / lambda[j].den, &times)) return "";
    if (columns[j].is_negated) times = -times;
    sum += cat(times < 0     ? " - "
               : sum.empty() ? ""
                             : " + ",
               times < 0 ? -times : times, columns[j].name.empty() ? "" : "*", columns[j].name);
  }
  return cat(denominator, ": ", sum.empty() ? "0" : sum);
}

bool shares_monomial(const Poly& p, std::span<const Monomial> with) {
  for (const auto& [m, c] : p.terms())
    if (m.size() > 1 && std::binary_search(with.begin(), with.end(), m)) return true;
  return false;
}

std::string derive_at_least_0(std::span<const Guard> facts, const Poly& goal) {
  std::vector<Column> columns = {{"", Poly(1)}};
  std::vector<Monomial> products;  // the nonlinear monomials that someone speaks of
  auto note = [&](const Poly& p) {
    for (const auto& [m, c] : p.terms())
      if (m.size() > 1) products.push_back(m);
  };
  auto add = [&](std::string name, const Poly& p, bool is_zero) {
    columns.push_back({name, p, false});
    if (is_zero) columns.push_back({std::move(name), -p, true});
  };
  note(goal);
  for (size_t k = 0; k < facts.size(); ++k) {
    add(cat("h", k), facts[k].p, facts[k].is_zero);
    note(facts[k].p);
  }
  std::vector<Rational> lambda;
  if (Simplex(columns, goal).solve(lambda)) return certificate(columns, lambda);
  if (products.empty() || facts.size() > 80) return "";
  std::sort(products.begin(), products.end());
  for (size_t j = 0; j < facts.size(); ++j)
    for (size_t k = j; k < facts.size(); ++k)
      if (const Poly p = facts[j].p * facts[k].p; shares_monomial(p, products))
        add(cat("h", j, "*h", k), p, facts[j].is_zero || facts[k].is_zero);
  if (columns.size() > 400) return "";
  return Simplex(columns, goal).solve(lambda) ? certificate(columns, lambda) : "";
}
}  // namespace

std::string derive(std::span<const Guard> facts, const Guard& goal) {
  std::string up = derive_at_least_0(facts, goal.p);
  if (up.empty() || !goal.is_zero) return up;
  const std::string down = derive_at_least_0(facts, -goal.p);
  return down.empty() ? "" : cat(up, " ; ", down);
}

}  // namespace tegula::superopt
