#include <optional>

#include "tegula/base/algorithm.h"
#include "tools/rules/check/check.h"
#include "tools/rules/check/sums.h"

namespace tegula::rulecheck {

namespace {
using Text = std::string_view;

bool has(const std::vector<Name>& all, const Name& n) {
  return std::find(all.begin(), all.end(), n) != all.end();
}

// Equal but for the order of what adds or multiplies.
template <class T, class F>
bool same_in_any_order(const std::vector<T>& a, const std::vector<T>& b, F&& same) {
  std::vector<bool> taken(b.size());
  for (const T& x : a) {
    size_t k = 0;
    while (k < b.size() && (taken[k] || !same(x, b[k]))) ++k;
    if (k == b.size()) return false;
    taken[k] = true;
  }
  return a.size() == b.size();
}
bool subset(const std::vector<Fact>& a, const std::vector<Fact>& b) {
  for (const Fact& f : a)
    if (std::find(b.begin(), b.end(), f) == b.end()) return false;
  return true;
}
bool same_scope(const auto& a, const auto& b) {
  std::vector<Name> m = a.bound, n = b.bound;
  std::sort(m.begin(), m.end()), std::sort(n.begin(), n.end());
  return m == n && subset(a.guards, b.guards) && subset(b.guards, a.guards);
}
bool same_but_coefficient(const Term& a, const Term& b);
bool same(const Part& a, const Part& b) {
  return same_scope(a, b) && same_in_any_order(a.sum, b.sum, [](const Term& x, const Term& y) {
           return x.coefficient == y.coefficient && same_but_coefficient(x, y);
         });
}
bool same(const Factor& a, const Factor& b) {
  if (a.name != b.name || a.index != b.index || a.parts.size() != b.parts.size()) return false;
  if (a.name == "max")
    return same_in_any_order(a.parts, b.parts,
                             [](const Part& x, const Part& y) { return same(x, y); });
  for (size_t k = 0; k < a.parts.size(); ++k)
    if (!same(a.parts[k], b.parts[k])) return false;
  return true;
}
bool same_but_coefficient(const Term& a, const Term& b) {
  return same_scope(a, b) &&
         same_in_any_order(a.factors, b.factors,
                           [](const Factor& x, const Factor& y) { return same(x, y); });
}

void replace(Term& t, const Name& v, const Poly& by);
void replace(Part& p, const Name& v, const Poly& by) {
  for (Fact& g : p.guards) g.p = g.p.replaced(v, by);
  for (Term& t : p.sum) replace(t, v, by);
}
void replace(Term& t, const Name& v, const Poly& by) {
  t.coefficient = t.coefficient.replaced(v, by);
  for (Fact& g : t.guards) g.p = g.p.replaced(v, by);
  for (Factor& f : t.factors) {
    for (Poly& i : f.index) i = i.replaced(v, by);
    for (Part& p : f.parts) replace(p, v, by);
  }
}
// Whether the name stands, bound or free, in the scope or below.
bool mentions(const Term& t, const Name& n);
bool mentions_scope(const auto& s, const Name& n) {
  if (has(s.bound, n)) return true;
  for (const Fact& g : s.guards)
    if (g.p.has(n)) return true;
  return false;
}
bool mentions(const Part& p, const Name& n) {
  if (mentions_scope(p, n)) return true;
  for (const Term& t : p.sum)
    if (mentions(t, n)) return true;
  return false;
}
bool mentions(const Term& t, const Name& n) {
  if (mentions_scope(t, n) || t.coefficient.has(n)) return true;
  for (const Factor& f : t.factors) {
    for (const Poly& i : f.index)
      if (i.has(n)) return true;
    for (const Part& p : f.parts)
      if (mentions(p, n)) return true;
  }
  return false;
}

struct Words {
  Text rest;
  std::string next() {
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    const std::string w(rest.substr(0, rest.find(' ')));
    return rest.remove_prefix(w.size()), w;
  }
  std::optional<size_t> number() {
    const std::string w = next();
    if (w.empty() || w.size() > 9 || w.find_first_not_of("0123456789") != Name::npos) return {};
    return static_cast<size_t>(std::stoul(w));
  }
  std::optional<Poly> poly() {  // to the end of the line
    const auto p = read_poly(rest);
    if (!p.ok() || rest.find_first_not_of(' ') != Text::npos || p->is_bad) return {};
    return *p;
  }
};

// A place in the sum: the term or part there, what holds it, and the facts around it.
struct Place {
  std::vector<Term>* terms = nullptr;  // and `at` in it, or
  Factor* factor = nullptr;            // part `at` of it
  size_t at = 0;
  std::vector<Fact> around;
  std::vector<Name> visible;  // bound by the scopes around
  bool is_top = false;
  Term& term() const { return (*terms)[at]; }
  Part& part() const { return factor->parts[at]; }
  std::vector<Name>& bound() const { return terms ? term().bound : part().bound; }
  std::vector<Fact>& guards() const { return terms ? term().guards : part().guards; }
  bool is_max() const { return factor && factor->name == "max"; }
};

struct Replay {
  const Rule& rule;
  std::vector<Fact> facts, needed;
  std::vector<Term> sum;
  std::vector<bool> gone;
  std::vector<Poly> left_shape, right_shape;

  void own_facts(const Term& t, std::vector<Fact>& all, size_t without = SIZE_MAX) const {
    for (size_t g = 0; g < t.guards.size(); ++g)
      if (g != without) all.push_back(t.guards[g]);
    for (const Factor& f : t.factors)
      if (const auto x = rule.inputs.find(f.name); f.parts.empty() && x != rule.inputs.end())
        for (size_t d = 0; d < f.index.size(); ++d) {
          all.push_back({f.index[d]});
          all.push_back({x->second[d] - 1 - f.index[d]});
        }
  }
  std::vector<Fact> facts_at(const Place& p, size_t without = SIZE_MAX) const {
    std::vector<Fact> all = p.around;
    if (p.terms)
      own_facts(p.term(), all, without);
    else
      for (size_t g = 0; g < p.guards().size(); ++g)
        if (g != without) all.push_back(p.guards()[g]);
    return all;
  }

  // "3.0.1.2": term 3, factor 0, part 1, term 2. With an even number of steps the place is a
  // factor.
  std::optional<Place> place(Text text, bool to_factor = false) {
    Place p{&sum, nullptr, 0, facts, {}, true};
    for (int k = 0;; ++k) {
      const Text digits = text.substr(0, text.find('.'));
      Words w{digits};
      const auto n = w.number();
      if (!n) return {};
      if (k % 3 == 0) {
        if (k > 0) {
          p.around.insert(p.around.end(), p.part().guards.begin(), p.part().guards.end());
          p.visible.insert(p.visible.end(), p.part().bound.begin(), p.part().bound.end());
          p.terms = &p.part().sum, p.factor = nullptr, p.is_top = false;
        }
        p.at = *n;
        if (p.at >= p.terms->size() || (p.is_top && gone[p.at])) return {};
      } else if (k % 3 == 1) {
        if (*n >= p.term().factors.size()) return {};
        own_facts(p.term(), p.around);
        p.visible.insert(p.visible.end(), p.term().bound.begin(), p.term().bound.end());
        p.factor = &p.term().factors[*n];
      } else {
        if (*n >= p.factor->parts.size()) return {};
        p.terms = nullptr, p.at = *n;
      }
      if (digits.size() == text.size())
        return (k % 3 == 1) == to_factor ? std::optional(p) : std::nullopt;
      text.remove_prefix(digits.size() + 1);
    }
  }

  // d·goal = Σ c·h…·h + c, with c ≥ 0 but where a factor is an equality, and then goal ≥ 0.
  static bool adds_up(Text certificate, const std::vector<Fact>& facts, const Poly& goal) {
    const auto multiplier = read_poly(certificate);
    if (!multiplier.ok() || certificate.empty() || certificate[0] != ':') return false;
    certificate.remove_prefix(1);
    const auto combination = read_poly(certificate);
    if (!combination.ok() || certificate.find_first_not_of(' ') != Text::npos) return false;
    const bool is_positive = multiplier->terms.size() == 1 &&
                             multiplier->terms.begin()->first.empty() &&
                             multiplier->terms.begin()->second > 0;
    Poly total;
    for (const auto& [names, c] : combination->terms) {
      bool any_sign = false;
      if (names.size() > 2) return false;
      Poly product(c);
      for (const Name& n : names) {
        Words w{Text(n).substr(1)};
        const auto k = w.number();
        if (n[0] != 'h' || !k || *k >= facts.size()) return false;
        any_sign = any_sign || facts[*k].is_zero;
        product = product * facts[*k].p;
      }
      if (c < 0 && !any_sign) return false;
      total = total + product;
    }
    return is_positive && !combination->is_bad && total == *multiplier * goal;
  }
  static bool follows(Text certificates, const std::vector<Fact>& facts, const Fact& goal) {
    if (!goal.is_zero) return adds_up(certificates, facts, goal.p);
    const size_t n = certificates.find(" ; ");
    return n != Text::npos && adds_up(certificates.substr(0, n), facts, goal.p) &&
           adds_up(certificates.substr(n + 3), facts, Poly(-1) * goal.p);
  }

  // Why the step is wrong, or nothing.
  std::string apply(Text step) {
    const size_t by = step.find(" by ");
    const Text why = by == Text::npos ? Text() : step.substr(by + 4);
    Words w{step.substr(0, by)};
    const std::string verb = w.next();
    if (verb == "shape" || verb == "valid") return apply_to_rule(verb, w, why);
    const std::string name = w.next();
    if (verb == "merge") return merge(name, w.next());
    const auto p = place(name, verb == "unwrap");
    if (!p) return "there is no such place";
    if (verb == "void") return remove(*p, why);
    if (verb == "drop") {
      const auto g = w.number();
      if (!g || *g >= p->guards().size()) return "there is no such guard";
      if (!follows(why, facts_at(*p, *g), p->guards()[*g]))
        return "the certificate does not add up";
      p->guards().erase(p->guards().begin() + static_cast<std::ptrdiff_t>(*g));
      return "";
    }
    if (verb == "solve") return solve(*p, w);
    if (verb == "pin") return pin(*p, w, why);
    if (verb == "count") return count(*p, w);
    if (verb == "divide") return divide(*p, w, why);
    if (verb == "subst") return substitute(*p, w);
    if (verb == "split") return split(*p, w);
    if (verb == "flatten") return flatten(*p);
    if (verb == "unwrap") return unwrap(*p);
    return "there is no such step";
  }

  std::string apply_to_rule(const std::string& verb, Words w, Text why) {
    const auto k = w.number();
    const bool is_shape = verb == "shape";
    if (!k || *k >= (is_shape ? left_shape.size() : needed.size()))
      return "its number is too large";
    const Fact goal = is_shape ? Fact{left_shape[*k] - right_shape[*k], true} : needed[*k];
    if (!follows(why, facts, goal)) return "the certificate does not add up";
    if (is_shape)
      right_shape[*k] = left_shape[*k];
    else
      facts_shown.push_back(goal);
    return "";
  }
  std::vector<Fact> facts_shown;

  std::string merge(Text a, Text b) {
    const auto p = place(a), q = place(b);
    if (!p || !q || (p->terms != q->terms) || p->at == q->at) return "there are no two such places";
    if (p->terms) {
      if (!p->is_top || !same_but_coefficient(p->term(), q->term()))
        return "the terms are not alike";
      p->term().coefficient = p->term().coefficient + q->term().coefficient;
      gone[q->at] = true;
      return "";
    }
    if (p->factor != q->factor || !p->is_max() || !same(p->part(), q->part()))
      return "the parts are not alike";
    p->factor->parts.erase(p->factor->parts.begin() + static_cast<std::ptrdiff_t>(q->at));
    return "";
  }
  std::string remove(const Place& p, Text why) {
    if (!follows(why, facts_at(p), {Poly(-1)})) return "the certificate does not add up";
    if (!p.terms && (!p.is_max() || p.factor->parts.size() < 2))
      return "a function needs its operands";
    if (!p.terms)
      p.factor->parts.erase(p.factor->parts.begin() + static_cast<std::ptrdiff_t>(p.at));
    else if (p.is_top)
      gone[p.at] = true;
    else
      p.terms->erase(p.terms->begin() + static_cast<std::ptrdiff_t>(p.at));
    return "";
  }
  // v's coefficient in p where p has it once and only alone.
  static int64_t unit(const Poly& p, const Name& v) {
    int64_t c = 0;
    for (const auto& [names, times] : p.terms)
      if (has(names, v)) c = c == 0 && names.size() == 1 ? times : 2;
    return c == 1 || c == -1 ? c : 0;
  }
  static void replace_at(const Place& p, const Name& v, const Poly& by) {
    if (p.terms)
      replace(p.term(), v, by);
    else
      replace(p.part(), v, by);
  }
  std::string pin(const Place& p, Words w, Text why) {
    const Name v = w.next();
    const auto value = w.poly();
    if (!value || value->has(v) || (!p.terms && !p.is_max())) return "there is no such value";
    const Fact equal{Poly::of(v) - *value, true};
    if (!follows(why, facts_at(p), equal)) return "the certificate does not add up";
    replace_at(p, v, *value);
    p.guards().push_back(equal);
    return "";
  }
  std::string solve(const Place& p, Words w) {
    const auto g = w.number();
    const Name v = w.next();
    if ((!p.terms && !p.is_max()) || !g || *g >= p.guards().size() || !p.guards()[*g].is_zero ||
        !has(p.bound(), v))
      return "there is no such equality or variable";
    const Poly e = p.guards()[*g].p;
    const int64_t c = unit(e, v);
    if (c == 0) return "the variable's coefficient is neither 1 nor -1";
    p.guards().erase(p.guards().begin() + static_cast<std::ptrdiff_t>(*g));
    p.bound().erase(std::find(p.bound().begin(), p.bound().end(), v));
    replace_at(p, v, Poly(c) * (Poly(c) * Poly::of(v) - e));
    return "";
  }
  std::string count(const Place& p, Words w) {
    const Name v = w.next();
    if (!p.terms || !has(p.bound(), v)) return "there is no such variable";
    Term t = p.term();
    t.bound.erase(std::find(t.bound.begin(), t.bound.end(), v));
    std::vector<Poly> low, high;  // v − l ≥ 0 and h − v ≥ 0
    for (size_t g = t.guards.size(); g-- > 0;) {
      const Poly e = t.guards[g].p;
      const int64_t c = t.guards[g].is_zero ? 0 : unit(e, v);
      if (c == 0) continue;
      (c == 1 ? low : high).push_back(c == 1 ? Poly::of(v) - e : e + Poly::of(v));
      t.guards.erase(t.guards.begin() + static_cast<std::ptrdiff_t>(g));
    }
    if (low.size() != 1 || high.size() != 1 || mentions(t, v)) return "it has more than two bounds";
    t.guards.push_back({high[0] - low[0]});
    t.coefficient = t.coefficient * (high[0] - low[0] + 1);
    p.term() = std::move(t);
    return "";
  }
  std::string divide(const Place& p, Words w, Text why) {
    const auto g = w.number();
    const Name s = w.next();
    if (!p.terms || !g || *g >= p.guards().size() || !p.guards()[*g].is_zero || s.empty())
      return "there is no such equality";
    Poly quotient, rest;
    for (const auto& [names, c] : p.guards()[*g].p.terms) {
      std::vector<Name> others = names;
      if (const auto at = std::find(others.begin(), others.end(), s); at != others.end())
        others.erase(at), quotient.add(others, c);
      else
        rest.add(names, c);
    }
    const std::vector<Fact> known = facts_at(p, *g);
    const size_t n = why.find(" ; ");
    if (n == Text::npos || !adds_up(why.substr(0, n), known, Poly::of(s) - 1 - rest) ||
        !adds_up(why.substr(n + 3), known, Poly::of(s) - 1 + rest))
      return "the certificate does not add up";
    p.guards()[*g].p = quotient;
    p.guards().push_back({rest, true});
    return "";
  }
  std::string substitute(const Place& p, Words w) {
    const Name v = w.next(), fresh = w.next();
    const auto poly = w.poly();
    if (!poly || !has(p.bound(), v)) return "there is no such variable";
    const bool is_name = fresh.size() > 1 && Text("rz").find(fresh[0]) != Text::npos &&
                         fresh.find_first_not_of("0123456789", 1) == Name::npos;
    const bool is_taken =
        has(p.visible, fresh) || (p.terms ? mentions(p.term(), fresh) : mentions(p.part(), fresh));
    if (!is_name || is_taken) return "the new name is taken, or none";
    if (unit(*poly, fresh) == 0) return "the new variable's coefficient is neither 1 nor -1";
    for (const auto& [names, c] : poly->terms)
      for (const Name& n : names) {
        const bool is_index =
            n[0] == 'i' && n.size() > 1 && n.find_first_not_of("0123456789", 1) == Name::npos;
        if (n == v || !(n == fresh || is_index || has(p.bound(), n) || has(p.visible, n) ||
                        has(rule.sizes, n) || has(rule.integers, n)))
          return cat("'", n, "' may not stand there");
      }
    for (Name& b : p.bound())
      if (b == v) b = fresh;
    replace_at(p, v, *poly);
    return "";
  }
  std::string split(const Place& p, Words w) {
    const auto on = w.poly();
    if (!on || (!p.terms && !p.is_max())) return "that cannot be split";
    for (const auto& [names, c] : on->terms)
      for (const Name& n : names)
        if (has(rule.scalars, n)) return "a scalar has no cases";
    const Fact yes{*on}, no{Poly(-1) * *on - 1};
    if (p.terms) {
      Term rest = p.term();
      rest.guards.push_back(no);
      p.guards().push_back(yes);
      p.terms->push_back(std::move(rest));
      if (p.is_top) gone.push_back(false);
    } else {
      Part rest = p.part();
      rest.guards.push_back(no);
      p.guards().push_back(yes);
      p.factor->parts.push_back(std::move(rest));
    }
    return sum.size() > 10'000 ? "too many terms" : "";
  }
  static bool is_bare(const Term& t) {
    return t.coefficient == Poly(1) && t.bound.empty() && t.guards.empty() && t.factors.size() == 1;
  }
  std::string flatten(const Place& p) {
    if (p.terms || !p.is_max() || p.part().sum.size() != 1 || !is_bare(p.part().sum[0]) ||
        p.part().sum[0].factors[0].name != "max")
      return "that is no max of a max";
    const Part outer = p.part();
    p.factor->parts.erase(p.factor->parts.begin() + static_cast<std::ptrdiff_t>(p.at));
    for (Part inner : outer.sum[0].factors[0].parts) {
      for (const Name& b : outer.bound)
        if (has(inner.bound, b)) return "two variables have one name";
      inner.bound.insert(inner.bound.begin(), outer.bound.begin(), outer.bound.end());
      inner.guards.insert(inner.guards.begin(), outer.guards.begin(), outer.guards.end());
      p.factor->parts.push_back(std::move(inner));
    }
    return "";
  }
  std::string unwrap(const Place& p) {
    if (!p.is_max() || p.factor->parts.size() != 1 || !p.factor->parts[0].bound.empty() ||
        !p.factor->parts[0].guards.empty())
      return "that is no max of one value";
    Term rest = p.term();
    const std::vector<Term> value = p.factor->parts[0].sum;
    rest.factors.erase(rest.factors.begin() + (p.factor - p.term().factors.data()));
    if (value.empty()) {
      p.term().coefficient = 0;
      if (p.is_top) gone[p.at] = true;
    }
    for (size_t k = 0; k < value.size(); ++k) {
      Term t = rest;
      // Facts about it would be taken for facts about another one.
      for (const Name& b : value[k].bound)
        if (mentions(rest, b)) return "two variables have one name";
      t.coefficient = t.coefficient * value[k].coefficient;
      t.bound.insert(t.bound.end(), value[k].bound.begin(), value[k].bound.end());
      t.guards.insert(t.guards.end(), value[k].guards.begin(), value[k].guards.end());
      t.factors.insert(t.factors.end(), value[k].factors.begin(), value[k].factors.end());
      if (k == 0) {
        p.term() = std::move(t);
      } else {
        p.terms->push_back(std::move(t));
        if (p.is_top) gone.push_back(false);
      }
    }
    return "";
  }

  Status run() {
    const Meaning left = TEGULA_TRY(meaning_of(rule, rule.left[0])),
                  right = TEGULA_TRY(meaning_of(rule, rule.right[0]));
    facts = rule.where;
    facts.insert(facts.end(), left.needs.begin(), left.needs.end());
    needed = right.needs, left_shape = left.shape, right_shape = right.shape;
    if (left_shape.size() != right_shape.size()) return invalid_argument("the sides' ranks differ");
    sum = left.sum;
    for (Term t : right.sum) {
      t.coefficient = Poly(-1) * t.coefficient;
      sum.push_back(std::move(t));
    }
    gone.assign(sum.size(), false);
    for (size_t n = 0; n < rule.steps.size(); ++n)
      if (const std::string why = apply(rule.steps[n]); !why.empty())
        return invalid_argument(cat("step ", n + 1, ", '", rule.steps[n], "': ", why));
    if (!(left_shape == right_shape))
      return invalid_argument("nothing shows that the shapes agree");
    for (const Fact& f : needed)
      if (!subset({f}, facts) && !subset({f}, facts_shown))
        return invalid_argument("nothing shows that the right side's ops are valid");
    for (size_t k = 0; k < sum.size(); ++k)
      if (!gone[k] && !(sum[k].coefficient == Poly(0)))
        return invalid_argument(
            cat("after its ", rule.steps.size(), " steps term ", k, " is left"));
    return {};
  }
};
}  // namespace

Result<int> check_rules(Text text, Text file) {
  const std::vector<Rule> rules = TEGULA_TRY(read_rules(text, file));
  for (const Rule& rule : rules) {
    if (!rule.has_proof) return invalid_argument(cat(file, ": rule ", rule.name, ": has no proof"));
    if (const Status s = Replay{rule}.run(); !s.ok())
      return invalid_argument(cat(file, ": rule ", rule.name, ": ", s.error().message));
  }
  return static_cast<int>(rules.size());
}

}  // namespace tegula::rulecheck
