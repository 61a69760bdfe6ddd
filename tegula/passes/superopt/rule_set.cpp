#include "tegula/passes/superopt/rule_set.h"

#include "tegula/base/algorithm.h"
#include "tegula/ir/hash.h"
#include "tegula/passes/superopt/search.h"

namespace tegula::superopt {

RuleSet::RuleSet(std::vector<Rule> all, size_t n_named) : all_(std::move(all)), n_named_(n_named) {
  for (size_t k = 0; k < all_.size(); ++k) {
    const Rule& r = all_[k];
    hash_ = mix(hash_, hash_of(r.text()));
    index(k, {r.left});
    const Node& left = r.graph.nodes[static_cast<size_t>(r.left)];
    if (left.kind == "concat") index(k, left.in);  // which stands for its operands, too
  }
}

const RuleSet& RuleSet::of_tool() {
  static const RuleSet rules(named_rules(), named_rules().size());
  return rules;
}

void RuleSet::index(size_t rule, const std::vector<int>& roots) {
  const std::vector<Node>& nodes = all_[rule].graph.nodes;
  Needs needs{rule, {}};
  std::vector<int> open = roots;
  for (size_t k = 0; k < open.size(); ++k) {
    const Node& n = nodes[static_cast<size_t>(open[k])];
    if (n.kind == "input") {
      if (k < roots.size()) return;  // it would stand everywhere
      continue;
    }
    for (const int x : n.in) {
      open.push_back(x);
      const std::string& kind = nodes[static_cast<size_t>(x)].kind;
      needs.pairs.emplace_back(n.kind, kind == "input" ? "" : kind);
    }
  }
  if (!needs.pairs.empty()) by_head_[needs.pairs[0]].push_back(std::move(needs));
}

std::vector<size_t> RuleSet::that_may_fit(const Kinds& kinds) const {
  std::set<size_t> found;
  for (const Pair& pair : kinds.pairs) {
    const auto heads = by_head_.find(pair);
    if (heads == by_head_.end()) continue;
    for (const Needs& n : heads->second)
      if (std::all_of(n.pairs.begin(), n.pairs.end(),
                      [&](const Pair& p) { return kinds.pairs.contains(p); }))
        found.insert(n.rule);
  }
  return {found.begin(), found.end()};
}

}  // namespace tegula::superopt
