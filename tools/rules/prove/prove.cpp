#include "tools/rules/prove/prove.h"

#include "tegula/base/algorithm.h"
#include "tools/rules/prove/simplify.h"

namespace tegula::superopt {

namespace {
struct Prover {
  const Rule& rule;
  Proof proof;
  std::vector<Guard> facts;
  Value sum;  // left − right; a coefficient of 0 marks what is gone
  Simplifier simplifier{rule.graph, proof.steps};

  bool fail(std::string why) { return proof.failure = std::move(why), false; }

  bool shapes_agree() {
    const Extents &left = rule.graph.nodes[static_cast<size_t>(rule.left)].shape,
                  &right = rule.graph.nodes[static_cast<size_t>(rule.right)].shape;
    for (size_t d = 0; d < left.size(); ++d) {
      if (left[d] == right[d]) continue;
      const std::string why = derive(facts, {left[d] - right[d], true});
      if (why.empty())
        return fail(cat("dim ", d, " has ", left[d].text(), " elements at left, ", right[d].text(),
                        " at right"));
      simplifier.note(cat("shape ", d, " by ", why));
    }
    const std::vector<Guard> needed = conditions(rule.graph, rule.right);
    for (size_t k = 0; k < needed.size(); ++k) {
      if (std::find(facts.begin(), facts.end(), needed[k]) != facts.end()) continue;
      const std::string why = derive(facts, needed[k]);
      if (why.empty()) {
        proof.missing = {needed[k]};
        return fail(cat("the right side's ops need ", needed[k].text()));
      }
      simplifier.note(cat("valid ", k, " by ", why));
    }
    return true;
  }

  // Terms of one signature cancel in every case of their guards. `path` has decided the case.
  bool close(std::vector<size_t> members, std::vector<Guard> path, int depth) {
    std::vector<size_t> alive;
    for (const size_t k : members) {
      if (simplifier.is_void(sum[k], cat(k), facts))
        sum[k].coefficient = 0;
      else
        alive.push_back(k);
    }
    if (alive.empty()) return true;
    Poly total = 0;
    const auto on_path = [&](const Guard& g) {
      return std::find(path.begin(), path.end(), g) != path.end();
    };
    for (const size_t k : alive) {
      auto& guards = sum[k].guards;
      for (size_t g = guards.size(); g-- > 0;)
        if (!on_path(guards[g])) simplifier.drop_guard(sum[k], g, cat(k), facts);
      total += sum[k].coefficient;
    }
    for (const size_t k : alive)
      for (const Guard& g : sum[k].guards)
        if (!on_path(g)) return decide(alive, path, g, depth);
    if (!total.is_zero()) {
      for (const Guard& g : path) note_missing(g);
      return fail(cat("this does not cancel: ", text_of(sum[alive[0]])));
    }
    for (size_t k = 1; k < alive.size(); ++k) {
      simplifier.note(cat("merge ", alive[0], " ", alive[k]));
      sum[alive[k]].coefficient = 0;
    }
    return true;
  }

  void note_missing(const Guard& g) {
    for (const Symbol s : g.p.symbols())
      if (std::find(rule.sizes.begin(), rule.sizes.end(), s) == rule.sizes.end() &&
          std::find(rule.integers.begin(), rule.integers.end(), s) == rule.integers.end())
        return;
    proof.missing.push_back({-g.p - 1});
  }

  bool decide(const std::vector<size_t>& members, std::vector<Guard> path, const Guard& g,
              int depth) {
    if (depth > 24 || !simplifier.is_within_budget()) return fail("too many cases");
    Poly on = g.p;
    if (g.is_zero && std::find(path.begin(), path.end(), Guard{on}) != path.end()) on = -on;
    std::vector<size_t> rest;
    for (const size_t k : members) {
      rest.push_back(sum.size());
      simplifier.split(sum, k, cat(k), on);
    }
    std::vector<Guard> yes = path, no = path;
    yes.push_back({on}), no.push_back({-on - 1});
    return close(members, std::move(yes), depth + 1) && close(rest, std::move(no), depth + 1);
  }

  bool run() {
    for (const Guard& g : conditions(rule.graph, rule.left)) facts.push_back(g);
    if (!shapes_agree()) return false;
    if (n_terms(rule.graph, rule.left) + n_terms(rule.graph, rule.right) > 200)
      return fail("more than 200 terms");
    sum = denote(rule.graph, rule.left);
    int64_t fresh = 10'000;
    for (Term t : denote(rule.graph, rule.right)) {
      t.coefficient = -t.coefficient;
      sum.push_back(std::move(t));
    }
    simplifier.run(sum, "", facts);
    if (!simplifier.is_within_budget()) return fail("more steps than the budget has");
    std::map<std::string, std::vector<size_t>> groups;
    for (size_t k = 0; k < sum.size(); ++k) {
      if (sum[k].coefficient.is_zero()) continue;
      Canonical c = canonical(sum[k], cat(k), fresh);
      for (std::string& step : c.steps) simplifier.note(std::move(step));
      sum[k] = std::move(c.term);
      groups[c.signature].push_back(k);
    }
    for (const auto& [signature, members] : groups)
      if (!close(members, {}, 0)) return false;
    return true;
  }
};
}  // namespace

Proof prove(const Rule& rule) {
  Prover prover{rule, {}, rule.where, {}};
  prover.proof.is_proven = prover.run();
  return std::move(prover.proof);
}

}  // namespace tegula::superopt
