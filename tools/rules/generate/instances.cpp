#include "tools/rules/generate/instances.h"

#include "tegula/base/algorithm.h"
#include "tools/rules/prove/derive.h"

namespace tegula::superopt {

namespace {
struct Finder {
  const Rule& rule;
  const Graph& graph;
  std::vector<Instance> found;
  using Wanted = std::pair<Poly, Poly>;  // of the pattern, and what it must become

  struct State {
    Instance instance;
    std::vector<Wanted> wanted;             // once all symbols are bound
    std::vector<std::pair<int, int>> open;  // pattern's node and graph's
  };

  static bool unify(State& s, const Poly& pattern, const Poly& actual) {
    if (pattern.is_const()) return pattern == actual;
    if (pattern.terms().size() == 1 && pattern.terms()[0].first.size() == 1 &&
        pattern.terms()[0].second == 1) {
      const auto [at, is_new] = s.instance.symbols.try_emplace(pattern.terms()[0].first[0], actual);
      return is_new || at->second == actual;
    }
    s.wanted.emplace_back(pattern, actual);
    return true;
  }
  // d − 1 = 2 binds d, where that is the one symbol still free.
  static void solve(Instance& m, const Poly& pattern, const Poly& actual) {
    const std::vector<std::pair<Symbol, Poly>> by(m.symbols.begin(), m.symbols.end());
    for (const Symbol s : pattern.symbols())
      if (!m.symbols.contains(s) && pattern.is_affine_in(s) && pattern.factor_of(s) == Poly(1))
        m.symbols.emplace(s, actual - (pattern - Poly(s)).substitute(by));
  }
  static bool unify(State& s, std::span<const Poly> pattern, std::span<const Poly> actual) {
    if (pattern.size() != actual.size()) return false;
    for (size_t k = 0; k < pattern.size(); ++k)
      if (!unify(s, pattern[k], actual[k])) return false;
    return true;
  }
  bool bind_input(State& s, const Node& p, int node) const {
    const auto [at, is_new] =
        s.instance.inputs.try_emplace(p.attrs.words.find("name")->second, node);
    return at->second == node &&
           (!is_new || unify(s, p.shape, graph.nodes[static_cast<size_t>(node)].shape));
  }
  // The head of a pattern's node beside the graph's: kinds, attributes, number of operands.
  bool head(State& s, const Node& p, const Node& n) const {
    if (p.in.size() != n.in.size() || n.kind == "input") return false;
    if (p.kind == "function") {
      const bool is_opaque = n.kind == "function" || !find_kind(n.kind);
      const std::string& name = n.kind == "function" ? n.attrs.words.find("name")->second : n.kind;
      return is_opaque && s.instance.functions.try_emplace(p.attrs.words.find("name")->second, name)
                                  .first->second == name;
    }
    if (p.kind != n.kind || p.attrs.words != n.attrs.words ||
        p.attrs.polys.size() != n.attrs.polys.size())
      return false;
    for (const auto& [name, polys] : p.attrs.polys) {
      const auto at = n.attrs.polys.find(name);
      if (at == n.attrs.polys.end() || !unify(s, polys, at->second)) return false;
    }
    return true;
  }
  // Whether the kinds alone agree: cheap, and no in most cases.
  bool fits(int pattern, int node) const {
    const Node &p = rule.graph.nodes[static_cast<size_t>(pattern)],
               &n = graph.nodes[static_cast<size_t>(node)];
    if (p.kind == "input") return p.shape.size() == n.shape.size();
    if (p.in.size() != n.in.size() || (p.kind != n.kind && p.kind != "function")) return false;
    const bool may_exchange = p.kind == "add" || p.kind == "mul" || p.kind == "max";
    if (may_exchange && fits(p.in[0], n.in[1]) && fits(p.in[1], n.in[0])) return true;
    for (size_t i = 0; i < p.in.size(); ++i)
      if (!fits(p.in[i], n.in[i])) return false;
    return true;
  }
  void run(State s) {
    while (!s.open.empty()) {
      const auto [pattern, node] = s.open.back();
      s.open.pop_back();
      const Node& p = rule.graph.nodes[static_cast<size_t>(pattern)];
      if (p.kind == "input") {
        if (!bind_input(s, p, node)) return;
        continue;
      }
      const Node& n = graph.nodes[static_cast<size_t>(node)];
      if (!head(s, p, n)) return;
      if (p.kind == "add" || p.kind == "mul" || p.kind == "max") {
        State other = s;
        other.open.emplace_back(p.in[0], n.in[1]);
        other.open.emplace_back(p.in[1], n.in[0]);
        run(std::move(other));
      }
      for (size_t k = 0; k < p.in.size(); ++k) s.open.emplace_back(p.in[k], n.in[k]);
    }
    for (const auto& [pattern, actual] : s.wanted) solve(s.instance, pattern, actual);
    const std::vector<std::pair<Symbol, Poly>> by(s.instance.symbols.begin(),
                                                  s.instance.symbols.end());
    for (const auto& [pattern, actual] : s.wanted)
      if (pattern.substitute(by) != actual) return;
    found.push_back(std::move(s.instance));
  }
};
}  // namespace

std::vector<Instance> instances_of(const Rule& rule, int side, const Graph& graph, int node,
                                   std::span<const Guard> facts) {
  Finder finder{rule, graph, {}};
  if (!finder.fits(side, node)) return {};
  finder.run({{}, {}, {{side, node}}});
  std::vector<Instance> all;
  for (Instance& m : finder.found) {
    const std::vector<std::pair<Symbol, Poly>> by(m.symbols.begin(), m.symbols.end());
    bool holds = true;
    for (const Guard& g : rule.where)
      holds = holds && !derive(facts, {g.p.substitute(by), g.is_zero}).empty();
    if (holds) all.push_back(std::move(m));
  }
  return all;
}

Result<int> instantiate(const Rule& rule, int side, const Instance& instance, Graph& graph) {
  const Node& n = rule.graph.nodes[static_cast<size_t>(side)];
  if (n.kind == "input") {
    const auto at = instance.inputs.find(n.attrs.words.find("name")->second);
    if (at == instance.inputs.end()) return invalid_argument("an input is not bound");
    return at->second;
  }
  std::vector<int> in;
  for (const int i : n.in) in.push_back(TEGULA_TRY(instantiate(rule, i, instance, graph)));
  const std::vector<std::pair<Symbol, Poly>> by(instance.symbols.begin(), instance.symbols.end());
  KindAttrs attrs = n.attrs;
  for (auto& [name, polys] : attrs.polys)
    for (Poly& p : polys) {
      for (const Symbol s : p.symbols())
        if (!instance.symbols.contains(s)) return invalid_argument("a symbol is not bound");
      p = p.substitute(by);
    }
  if (n.kind != "function") return graph.add(n.kind, std::move(in), std::move(attrs));
  const auto f = instance.functions.find(n.attrs.words.find("name")->second);
  if (f == instance.functions.end()) return invalid_argument("a function is not bound");
  const bool is_op = !find_kind(f->second) && n.attrs.words.find("name")->second != f->second &&
                     form_of(f->second, {std::vector<Extents>{{}}, {}}).ok();
  if (is_op) return graph.add(f->second, std::move(in), {});
  attrs.words["name"] = f->second;
  return graph.add("function", std::move(in), std::move(attrs));
}

Result<int> replaced(Graph& graph, int root, int node, int by) {
  if (root == node) return by;
  const Node n = graph.nodes[static_cast<size_t>(root)];
  std::vector<int> in;
  for (const int i : n.in) in.push_back(TEGULA_TRY(replaced(graph, i, node, by)));
  return in == n.in ? Result<int>(root) : graph.add(n.kind, std::move(in), n.attrs);
}

std::vector<int> nodes_of(const Graph& graph, int root) {
  std::vector<int> all;
  for (const int i : graph.nodes[static_cast<size_t>(root)].in)
    for (const int n : nodes_of(graph, i))
      if (std::find(all.begin(), all.end(), n) == all.end()) all.push_back(n);
  all.push_back(root);
  return all;
}

}  // namespace tegula::superopt
