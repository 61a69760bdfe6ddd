// Names and shifts of bound variables. Each variable becomes, in turn, an index that it stands in
// with coefficient ±1, the first by the names of factors: then Σ_r x[i + r] w[r] and Σ_s x[s] w[s −
// i] have one text. Where names tie (an input twice) every choice is tried, and the least text is
// taken.
#include "tegula/base/algorithm.h"
#include "tools/rules/prove/prove.h"

namespace tegula::superopt {

namespace {
// An index of a factor, and by which names one comes to it.
struct Position {
  std::string key;
  Poly index;
};

bool has_any(const Poly& p, std::span<const Symbol> symbols) {
  for (const Symbol s : symbols)
    if (p.has(s)) return true;
  return false;
}

void positions(const Term& t, const std::string& prefix, std::vector<Symbol> inner,
               std::vector<Position>& all);

void positions(const Branch& b, const std::string& prefix, std::vector<Symbol> inner,
               std::vector<Position>& all) {
  for (const Term& t : b.value) {
    std::vector<Symbol> within = inner;
    within.insert(within.end(), t.bound.begin(), t.bound.end());
    positions(t, prefix, within, all);
  }
}

// Indices that hold no variable of an inner scope.
void positions(const Term& t, const std::string& prefix, std::vector<Symbol> inner,
               std::vector<Position>& all) {
  for (const Factor& f : t.factors) {
    for (size_t d = 0; d < f.index.size(); ++d)
      if (!has_any(f.index[d], inner)) all.push_back({cat(prefix, f.name, " ", d), f.index[d]});
    for (const Branch& b : f.branches) {
      std::vector<Symbol> within = inner;
      within.insert(within.end(), b.bound.begin(), b.bound.end());
      positions(b, cat(prefix, f.name, "("), within, all);
    }
  }
}

std::string signature_of(const Factor& f);

std::string joined(std::vector<std::string> parts, std::string_view between) {
  std::sort(parts.begin(), parts.end());
  std::string out;
  for (const std::string& p : parts) out += (out.empty() ? "" : std::string(between)) + p;
  return out;
}

std::string guards_text(const std::vector<Guard>& guards) {
  std::vector<std::string> parts;
  for (const Guard& g : guards) parts.push_back(cat("[", g.text(), "]"));
  return joined(std::move(parts), "");
}

std::string factors_text(const Term& t) {
  std::vector<std::string> parts;
  for (const Factor& f : t.factors) parts.push_back(signature_of(f));
  std::string bound;
  for (const Symbol s : t.bound) bound += s.name() + " ";
  return bound + joined(std::move(parts), "*");
}

std::string whole_text(const Term& t) {
  return cat("(", t.coefficient.text(), ")", guards_text(t.guards), factors_text(t));
}

std::string whole_text(const Branch& b) {
  std::vector<std::string> parts;
  for (const Term& t : b.value) parts.push_back(whole_text(t));
  std::string bound;
  for (const Symbol s : b.bound) bound += s.name() + " ";
  return cat(bound, guards_text(b.guards), "{", joined(std::move(parts), "+"), "}");
}

std::string signature_of(const Factor& f) {
  if (f.is_input()) return text_of(f);
  std::string out = f.name;
  std::vector<std::string> parts;
  for (const Branch& b : f.branches) parts.push_back(whole_text(b));
  if (f.name == "max") return cat("max", joined(std::move(parts), ""));
  for (const std::string& p : parts) out += p;  // operands have an order
  return out;
}

// A term and a branch share this: bound variables over something.
template <class Scope>
struct Search {
  const std::string& place;
  int64_t& fresh;
  int64_t next_c;
  Scope best;
  std::vector<std::string> best_steps;
  std::string best_text;
  int tried = 0;

  static void replace(Scope& s, std::vector<std::string>& steps, const std::string& place, Symbol v,
                      Symbol by, const Poly& poly) {
    for (Symbol& b : s.bound)
      if (b == v) b = by;
    substitute(s, v, poly);
    steps.push_back(cat("subst ", place, " ", v.name(), " ", by.name(), " ", poly.text()));
  }

  // `open` variables still have their old names; `fixed` have new ones, in order.
  void run(const Scope& s, const std::vector<std::string>& steps, std::vector<Symbol> open,
           std::vector<Symbol> fixed) {
    if (tried > 64) return;
    if (open.empty()) return finish(s, steps, fixed);
    std::vector<Position> all;
    positions(s, "", {}, all);
    std::string least;
    std::vector<std::pair<Symbol, Poly>> choices;  // variable, index
    for (const Position& p : all)
      for (const Symbol v : open) {
        const Poly by = p.index.has(v) ? p.index.factor_of(v) : Poly(0);
        if (by != Poly(1) && by != Poly(-1)) continue;
        if (!choices.empty() && p.key > least) continue;
        if (!choices.empty() && p.key < least) choices.clear();
        least = p.key;
        choices.emplace_back(v, p.index);
      }
    if (choices.empty())
      for (const Symbol v : open) choices.emplace_back(v, Poly(v));
    for (const auto& [v, index] : choices) {
      const Symbol by("r", fresh++);
      const Poly sign = index.factor_of(v);
      const Poly rest = index - sign * Poly(v);
      Scope next = s;
      std::vector<std::string> more = steps;
      replace(next, more, place, v, by, sign * (Poly(by) - rest));
      std::vector<Symbol> left = open, done = fixed;
      left.erase(std::find(left.begin(), left.end(), v));
      done.push_back(by);
      run(next, more, std::move(left), std::move(done));
    }
  }

  void finish(Scope s, std::vector<std::string> steps, const std::vector<Symbol>& fixed) {
    ++tried;
    int64_t c = next_c;
    for (const Symbol v : fixed) {
      const Symbol by("z", c++);
      replace(s, steps, place, v, by, by);
    }
    s.bound.clear();
    for (int64_t k = next_c; k < c; ++k) s.bound.emplace_back("z", k);
    inner(s, steps, c);
    const std::string text = text_to_compare(s);
    if (!best_steps.empty() || tried > 1)
      if (text >= best_text) return;
    best = std::move(s), best_steps = std::move(steps), best_text = text;
  }

  static std::string text_to_compare(const Term& t) {
    return cat(factors_text(t), guards_text(t.guards), t.coefficient.text());
  }
  static std::string text_to_compare(const Branch& b) { return whole_text(b); }

  void inner(Term& t, std::vector<std::string>& steps, int64_t c) {
    for (size_t f = 0; f < t.factors.size(); ++f)
      for (size_t b = 0; b < t.factors[f].branches.size(); ++b) {
        const std::string at = cat(place, ".", f, ".", b);
        Search<Branch> search{at, fresh, c, {}, {}, {}};
        Branch& branch = t.factors[f].branches[b];
        search.run(branch, {}, branch.bound, {});
        branch = std::move(search.best);
        steps.insert(steps.end(), search.best_steps.begin(), search.best_steps.end());
      }
  }
  void inner(Branch& b, std::vector<std::string>& steps, int64_t c) {
    for (size_t k = 0; k < b.value.size(); ++k) {
      Canonical one = canonical(b.value[k], cat(place, ".", k), fresh, c);
      b.value[k] = std::move(one.term);
      steps.insert(steps.end(), one.steps.begin(), one.steps.end());
    }
  }
};
}  // namespace

void freshen(Term& t, const std::string& place, int64_t& fresh, std::vector<std::string>& steps) {
  auto rename = [&](auto& scope, const std::string& at) {
    for (const Symbol v : std::vector<Symbol>(scope.bound))
      if (v.name()[0] == 'z') {
        const Symbol by("r", fresh++);
        Search<std::decay_t<decltype(scope)>>::replace(scope, steps, at, v, by, by);
      }
  };
  for (size_t f = 0; f < t.factors.size(); ++f)
    for (size_t b = 0; b < t.factors[f].branches.size(); ++b) {
      Branch& branch = t.factors[f].branches[b];
      rename(branch, cat(place, ".", f, ".", b));
      for (size_t k = 0; k < branch.value.size(); ++k) {
        rename(branch.value[k], cat(place, ".", f, ".", b, ".", k));
        freshen(branch.value[k], cat(place, ".", f, ".", b, ".", k), fresh, steps);
      }
    }
}

std::string text_in_any_order(const Branch& branch) { return whole_text(branch); }

Canonical canonical(const Term& term, const std::string& place, int64_t& fresh, int64_t next_c) {
  Search<Term> search{place, fresh, next_c, {}, {}, {}};
  Term start = term;
  std::vector<std::string> steps;
  freshen(start, place, fresh, steps);
  search.run(start, steps, start.bound, {});
  std::string signature = factors_text(search.best);
  return {std::move(search.best), std::move(search.best_steps), std::move(signature)};
}

}  // namespace tegula::superopt
