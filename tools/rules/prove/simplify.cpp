#include "tools/rules/prove/simplify.h"

#include "tegula/base/algorithm.h"

namespace tegula::superopt {

namespace {
bool has_any(const Poly& p, const std::vector<Symbol>& symbols) {
  for (const Symbol s : symbols)
    if (p.has(s)) return true;
  return false;
}
const Guard kFalse{Poly(-1)};

// Whether the symbol stands in coefficients, indices or inner guards.
bool mentions(const Term& t, Symbol v);
bool mentions(const Branch& b, Symbol v) {
  for (const Guard& g : b.guards)
    if (g.p.has(v)) return true;
  return std::any_of(b.value.begin(), b.value.end(), [&](const Term& t) { return mentions(t, v); });
}
bool mentions(const Term& t, Symbol v) {
  if (t.coefficient.has(v)) return true;
  for (const Guard& g : t.guards)
    if (g.p.has(v)) return true;
  for (const Factor& f : t.factors) {
    for (const Poly& i : f.index)
      if (i.has(v)) return true;
    for (const Branch& b : f.branches)
      if (mentions(b, v)) return true;
  }
  return false;
}
}  // namespace

std::string Simplifier::derive(const std::vector<Guard>& facts, const Guard& goal) {
  std::string key = goal.text();
  for (const Guard& g : facts) key += "|" + g.text();
  const auto [at, is_new] = known_.try_emplace(std::move(key));
  if (is_new) --budget_, at->second = superopt::derive(facts, goal);
  return at->second;
}

template <class Scope>
bool Simplifier::solve(Scope& s, const std::string& at) {
  for (size_t g = 0; g < s.guards.size(); ++g) {
    if (!s.guards[g].is_zero) continue;
    for (const Symbol v : s.bound) {
      const Poly p = s.guards[g].p;
      if (!p.has(v) || !p.is_affine_in(v)) continue;
      const Poly by = p.factor_of(v);
      if (by != Poly(1) && by != Poly(-1)) continue;
      note(cat("solve ", at, " ", g, " ", v.name()));
      s.guards.erase(s.guards.begin() + static_cast<std::ptrdiff_t>(g));
      s.bound.erase(std::find(s.bound.begin(), s.bound.end(), v));
      substitute(s, v, by * (by * Poly(v) - p));
      return true;
    }
  }
  return false;
}

// A symbol that the facts fix at a value is that value: a bound of it, as a fact gives it, that is
// also the other bound. Guards that say no more than that are left.
template <class Scope>
bool Simplifier::pin(Scope& s, const std::string& at, const std::vector<Guard>& known) {
  for (const Guard& bound : known)
    for (const Symbol v : bound.p.symbols()) {
      const Poly by = bound.p.is_affine_in(v) ? bound.p.factor_of(v) : Poly(0);
      if ((by != Poly(1) && by != Poly(-1)) || bound.p.terms().size() > 3) continue;
      const Poly value = Poly(v) - by * bound.p;
      const Guard equal{Poly(v) - value, true};
      Scope rest = s;
      std::erase_if(rest.guards, [&](const Guard& g) {
        return !g.p.has(v) || g.p == equal.p || g.p == -equal.p;
      });
      if (!mentions(rest, v)) continue;
      const std::string why = derive(known, equal);
      if (why.empty()) continue;
      note(cat("pin ", at, " ", v.name(), " ", value.text(), " by ", why));
      substitute(s, v, value);
      s.guards.push_back(equal);
      return true;
    }
  return false;
}

// S·p + q = 0 with −S < q < S gives p = 0 and q = 0. S is tried among the sizes and coefficients.
bool Simplifier::divide(Term& t, const std::string& at, const std::vector<Guard>& outer) {
  for (size_t g = 0; g < t.guards.size(); ++g) {
    if (!t.guards[g].is_zero) continue;
    const Poly whole = t.guards[g].p;
    for (const Symbol size : whole.symbols()) {
      if (std::find(t.bound.begin(), t.bound.end(), size) != t.bound.end() ||
          !whole.is_affine_in(size))
        continue;
      const Poly p = whole.factor_of(size), q = whole - p * Poly(size);
      if (p.is_const() || q.is_zero()) continue;
      std::vector<Guard> facts = outer;
      Term others = t;
      others.guards.erase(others.guards.begin() + static_cast<std::ptrdiff_t>(g));
      append_facts(others, graph_, facts);
      const std::string above = derive(facts, {Poly(size) - 1 - q}),
                        below = derive(facts, {Poly(size) - 1 + q});
      if (above.empty() || below.empty()) continue;
      note(cat("divide ", at, " ", g, " ", size.name(), " by ", above, " ; ", below));
      t.guards[g].p = p;
      t.guards.push_back({q, true});
      return true;
    }
  }
  return false;
}

bool Simplifier::is_void(const Term& t, const std::string& at, const std::vector<Guard>& outer) {
  const std::string why = derive(facts(t, outer), kFalse);
  if (why.empty()) return false;
  note(cat("void ", at, " by ", why));
  return true;
}

bool Simplifier::drop_guard(Term& t, size_t g, const std::string& at,
                            const std::vector<Guard>& outer) {
  Term others = t;
  others.guards.erase(others.guards.begin() + static_cast<std::ptrdiff_t>(g));
  const std::string why = derive(facts(others, outer), t.guards[g]);
  if (why.empty()) return false;
  note(cat("drop ", at, " ", g, " by ", why));
  t.guards = std::move(others.guards);
  return true;
}

void Simplifier::drop_implied(Term& t, const std::string& at, const std::vector<Guard>& outer) {
  for (size_t g = t.guards.size(); g-- > 0;) drop_guard(t, g, at, outer);
}

// A variable that only its own bounds hold counts.
bool Simplifier::count(Term& t, const std::string& at) {
  for (const Symbol v : t.bound) {
    Term others = t;
    others.guards.clear();
    Poly l, h;
    int n_low = 0, n_high = 0;
    for (const Guard& g : t.guards) {
      const Poly by = g.p.has(v) && g.p.is_affine_in(v) ? g.p.factor_of(v) : Poly(0);
      if (!g.is_zero && by == Poly(1))
        l = Poly(v) - g.p, ++n_low;
      else if (!g.is_zero && by == Poly(-1))
        h = g.p + Poly(v), ++n_high;
      else
        others.guards.push_back(g);
    }
    others.bound.erase(std::find(others.bound.begin(), others.bound.end(), v));
    if (n_low != 1 || n_high != 1 || mentions(others, v)) continue;
    note(cat("count ", at, " ", v.name()));
    t = std::move(others);
    t.guards.push_back({h - l});
    t.coefficient = t.coefficient * (h - l + 1);
    return true;
  }
  return false;
}

void Simplifier::split(Value& sum, size_t k, const std::string& at, const Poly& p) {
  note(cat("split ", at, " ", p.text()));
  Term rest = sum[k];
  rest.guards.push_back({-p - 1});
  sum[k].guards.push_back({p});
  sum.push_back(std::move(rest));
}

// A guard or box of the branch's terms that its scope could decide, and has not.
bool Simplifier::undecided(const Branch& b, const std::vector<Guard>& facts, Poly& on) {
  for (const Term& t : b.value) {
    std::vector<Guard> own;
    append_facts(t, graph_, own);
    for (const Guard& g : own) {
      if (has_any(g.p, t.bound)) continue;
      if (derive(facts, {g.p}).empty()) return on = g.p, true;
      if (g.is_zero && derive(facts, {-g.p}).empty()) return on = -g.p, true;
    }
  }
  return false;
}

bool Simplifier::maxima(Value& sum, size_t k, size_t f, const std::string& at,
                        const std::vector<Guard>& outer) {
  auto& branches = sum[k].factors[f].branches;
  const std::vector<Guard> around = facts(sum[k], outer);
  for (size_t b = 0; b < branches.size(); ++b) {
    const std::string place = cat(at, ".", f, ".", b);
    std::vector<Guard> domain = around;
    domain.insert(domain.end(), branches[b].guards.begin(), branches[b].guards.end());
    if (branches.size() > 1 && !branches[b].guards.empty())
      if (const std::string why = derive(domain, kFalse); !why.empty()) {
        note(cat("void ", place, " by ", why));
        branches.erase(branches.begin() + static_cast<std::ptrdiff_t>(b));
        return true;
      }
    for (size_t g = branches[b].guards.size(); g-- > 0;) {
      std::vector<Guard> others = domain;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(around.size() + g));
      const std::string why = derive(others, branches[b].guards[g]);
      if (why.empty()) continue;
      note(cat("drop ", place, " ", g, " by ", why));
      branches[b].guards.erase(branches[b].guards.begin() + static_cast<std::ptrdiff_t>(g));
      return true;
    }
    const Value& v = branches[b].value;
    if (v.size() == 1 && v[0].coefficient == Poly(1) && v[0].bound.empty() && v[0].guards.empty() &&
        v[0].factors.size() == 1 && v[0].factors[0].name == "max") {
      note(cat("flatten ", place));
      std::vector<Branch> inner = v[0].factors[0].branches;
      for (Branch& i : inner) {
        i.bound.insert(i.bound.begin(), branches[b].bound.begin(), branches[b].bound.end());
        i.guards.insert(i.guards.begin(), branches[b].guards.begin(), branches[b].guards.end());
      }
      branches.erase(branches.begin() + static_cast<std::ptrdiff_t>(b));
      branches.insert(branches.end(), inner.begin(), inner.end());
      return true;
    }
    for (const Guard& g : branches[b].guards)  // of the outer scope alone: to be decided there
      if (!has_any(g.p, branches[b].bound)) return split(sum, k, at, g.p), true;
  }
  if (branches.size() > 1) {
    Canonical c = canonical(sum[k], at, fresh_);
    const auto& alike = c.term.factors[f].branches;
    for (size_t b = 0; b < alike.size(); ++b)
      for (size_t o = b + 1; o < alike.size(); ++o) {
        if (text_in_any_order(alike[b]) != text_in_any_order(alike[o])) continue;
        for (std::string& step : c.steps) note(std::move(step));
        note(cat("merge ", at, ".", f, ".", b, " ", at, ".", f, ".", o));
        sum[k] = std::move(c.term);
        sum[k].factors[f].branches.erase(sum[k].factors[f].branches.begin() +
                                         static_cast<std::ptrdiff_t>(o));
        std::vector<std::string> renamed;
        freshen(sum[k], at, fresh_, renamed);
        for (std::string& step : renamed) note(std::move(step));
        return true;
      }
  }
  if (branches.size() == 1 && branches[0].bound.empty() && branches[0].guards.empty()) {
    note(cat("unwrap ", at, ".", f));
    const Value inner = branches[0].value;
    Term rest = sum[k];
    rest.factors.erase(rest.factors.begin() + static_cast<std::ptrdiff_t>(f));
    Value all;
    for (const Term& t : inner) {
      Term one = rest;
      one.coefficient = one.coefficient * t.coefficient;
      one.bound.insert(one.bound.end(), t.bound.begin(), t.bound.end());
      one.guards.insert(one.guards.end(), t.guards.begin(), t.guards.end());
      one.factors.insert(one.factors.end(), t.factors.begin(), t.factors.end());
      all.push_back(std::move(one));
    }
    if (all.empty()) {
      sum[k].coefficient = 0;
    } else {
      sum[k] = all[0];
      sum.insert(sum.end(), all.begin() + 1, all.end());
    }
    return true;
  }
  return false;
}

// One change to the term's functions, or none: what is left in them then holds throughout the term.
bool Simplifier::functions(Value& sum, size_t k, const std::string& at,
                           const std::vector<Guard>& outer) {
  for (size_t f = 0; f < sum[k].factors.size(); ++f) {
    const size_t n = sum[k].factors[f].branches.size();
    const std::vector<Guard> around = facts(sum[k], outer);
    for (size_t b = 0; b < n; ++b) {
      const std::string place = cat(at, ".", f, ".", b);
      Branch& branch = sum[k].factors[f].branches[b];
      std::vector<Guard> within = around;
      within.insert(within.end(), branch.guards.begin(), branch.guards.end());
      if (solve(branch, place) || pin(branch, place, within)) return true;
      run(branch.value, place, within);
      Poly on;
      if (!undecided(branch, within, on)) continue;
      if (!has_any(on, branch.bound)) return split(sum, k, at, on), true;
      note(cat("split ", place, " ", on.text()));
      Branch rest = branch;
      branch.guards.push_back({on});
      rest.guards.push_back({-on - 1});
      sum[k].factors[f].branches.push_back(std::move(rest));
      return true;
    }
    if (sum[k].factors[f].name == "max" && maxima(sum, k, f, at, outer)) return true;
  }
  return false;
}

void Simplifier::run(Value& sum, const std::string& place, const std::vector<Guard>& outer) {
  const bool is_top = place.empty();
  for (size_t k = 0; k < sum.size() && is_within_budget();) {
    const std::string at = is_top ? cat(k) : cat(place, ".", k);
    if (is_top && sum[k].coefficient.is_zero()) {
      ++k;
      continue;
    }
    if (divide(sum[k], at, outer) || solve(sum[k], at)) continue;
    if (is_void(sum[k], at, outer)) {
      if (is_top)
        sum[k].coefficient = 0, ++k;
      else
        sum.erase(sum.begin() + static_cast<std::ptrdiff_t>(k));
      continue;
    }
    drop_implied(sum[k], at, outer);
    if (count(sum[k], at) || pin(sum[k], at, facts(sum[k], outer))) continue;
    if (functions(sum, k, at, outer)) continue;
    ++k;
  }
}

}  // namespace tegula::superopt
