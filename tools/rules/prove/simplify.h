// The steps that make a term plain: equalities solved, what contradicts removed, guards that follow
// dropped, sums within functions decided.
#pragma once

#include "tools/rules/prove/prove.h"

namespace tegula::superopt {

class Simplifier {
 public:
  Simplifier(const Graph& graph, std::vector<std::string>& steps) : graph_(graph), steps_(steps) {}

  // Simplifies the terms of a sum from `from` on; splits and removals change it. At the top
  // (`place` is empty) a removed term keeps its number: its coefficient becomes 0.
  void run(Value& sum, const std::string& place, const std::vector<Guard>& outer);

  // False after more steps than any sensible rule needs.
  bool is_within_budget() const { return budget_ > 0; }
  std::string derive(const std::vector<Guard>& facts, const Guard& goal);
  void note(std::string step) { steps_.push_back(std::move(step)), --budget_; }
  // The facts at the term: `outer` and its own.
  std::vector<Guard> facts(const Term& t, std::vector<Guard> outer) const {
    append_facts(t, graph_, outer);
    return outer;
  }
  // sum[k] where p ≥ 0 and a new last term where not.
  void split(Value& sum, size_t k, const std::string& at, const Poly& p);
  bool is_void(const Term& t, const std::string& at, const std::vector<Guard>& outer);
  bool drop_guard(Term& t, size_t g, const std::string& at, const std::vector<Guard>& outer);

 private:
  template <class Scope>
  bool solve(Scope& s, const std::string& at);
  template <class Scope>
  bool pin(Scope& s, const std::string& at, const std::vector<Guard>& known);
  bool count(Term& t, const std::string& at);
  bool divide(Term& t, const std::string& at, const std::vector<Guard>& outer);
  void drop_implied(Term& t, const std::string& at, const std::vector<Guard>& outer);
  // A condition of the outer scope that something within the term's functions waits for.
  bool functions(Value& sum, size_t k, const std::string& at, const std::vector<Guard>& outer);
  bool maxima(Value& sum, size_t k, size_t f, const std::string& at,
              const std::vector<Guard>& outer);
  bool undecided(const Branch& b, const std::vector<Guard>& facts, Poly& on);
  std::map<std::string, std::string> known_;
  const Graph& graph_;
  std::vector<std::string>& steps_;
  int64_t fresh_ = 5000;
  int budget_ = 3000;
};

}  // namespace tegula::superopt
