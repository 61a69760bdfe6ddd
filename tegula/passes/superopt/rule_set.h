// The rules that a search takes: those in the tool, and behind them proven ones of a file.
#pragma once

#include "tegula/passes/superopt/match.h"

namespace tegula::superopt {

class RuleSet {
 public:
  // Each is proven, and has a name of its own (tools/rules/generate/read_rules.cpp).
  RuleSet(std::vector<Rule> all, size_t n_named);
  static const RuleSet& of_tool();

  const std::vector<Rule>& all() const { return all_; }
  size_t n_named() const { return n_named_; }  // those in the tool, which come first
  uint64_t hash() const { return hash_; }      // of the text of all
  // The numbers of rules of whose left sides each pair of an op and its operand stands in the
  // function, ascending.
  std::vector<size_t> that_may_fit(const Kinds& kinds) const;

 private:
  using Pair = std::pair<std::string, std::string>;
  struct Needs {
    size_t rule = 0;
    std::vector<Pair> pairs;
  };
  void index(size_t rule, const std::vector<int>& roots);
  std::vector<Rule> all_;
  size_t n_named_ = 0;
  std::map<Pair, std::vector<Needs>> by_head_;  // the left side's op and its first operand's
  uint64_t hash_ = 0;
};

}  // namespace tegula::superopt
