// Shared by finding and applying a rule.
#pragma once

#include "tegula/base/dot_dims.h"
#include "tegula/passes/superopt/match.h"

namespace tegula::superopt {

std::string_view word_of(const KindAttrs& a, std::string_view name);
// Kinds whose result has its operands' dims, and those that also name one of them.
bool is_elementwise(std::string_view kind);
bool has_dim(std::string_view kind);
// The dim of the function's tensor that stands for this one of the rule's alone; −1: several do, or
// none.
int dim_in(const View& view, int dim);
// A weight, possibly cast or seen through views: there whenever it is needed.
bool is_weight(const Function& f, ValueId v);

struct DotViews {
  View a, b, out;
};
// How a product with these dims is the rule's; none: it has other factors.
std::optional<DotViews> dot_views(std::string_view rule, std::string_view node);

struct State : Match {
  std::vector<std::pair<Poly, Poly>> later;  // pattern, value
};

class Matcher {
 public:
  // kinds: null, nobody has looked at them.
  Matcher(const Module& module, const Function& f, const Rule& rule, const Kinds* kinds = nullptr);
  std::vector<Match> run(size_t most);

  const Node& pattern(int n) const { return rule_.graph.nodes[static_cast<size_t>(n)]; }
  // Whether the pattern's node is v, seen so (`is_known`) or in any way, which `view` then is.
  bool value(int pattern_node, ValueId v, State& s, View& view, bool is_known);

 private:
  void roots(State s, size_t k, size_t begin);
  bool clashes(const Node& p, const tegula::Node& n, const State& s) const;
  const Poly* bound(const State& s, Symbol symbol) const;
  bool unify(const Poly& p, const Poly& v, State& s) const;
  bool unify(const std::vector<Poly>& p, const std::vector<Poly>& v, State& s) const;
  bool input(const Input& input, ValueId v, State& s, View& view, bool is_known) const;
  bool product(const Node& p, const tegula::Node& n, const KindOfNode& k, State& s, View& view,
               bool is_known);
  bool attributes(const Node& p, const KindOfNode& k, const View& view, State& s) const;
  bool operands(const Node& p, const tegula::Node& n, bool is_swapped, State& s, View& view,
                bool is_known);
  void finish(State s);
  const std::optional<KindOfNode>& kind(NodeId n);

  const Module& module_;
  const Function& f_;
  const Rule& rule_;
  const Kinds* const known_kinds_;
  const bool sees_casts_;
  std::vector<Symbol> free_;
  std::map<NodeId, std::optional<KindOfNode>> kinds_;
  std::map<std::pair<std::string, std::string>, std::optional<DotViews>> dot_views_;
  std::vector<Match> found_;
  size_t most_ = 0;
};

}  // namespace tegula::superopt
