#include <set>

#include "tegula/base/algorithm.h"
#include "tools/rules/generate/generate.h"

namespace tegula::superopt {

namespace {
// Each way in which an element of a node is made of inputs' elements, without what only moves them,
// and the inputs that it takes.
using Ways = std::map<std::string, std::set<std::string>>;

bool only_moves(std::string_view kind) {
  return kind == "concat" || kind == "slice" || kind == "permute" || kind == "reshape" ||
         kind == "broadcast" || kind == "dynamic_update_slice";
}

struct Classifier {
  const Rule& rule;
  std::vector<Guard> facts;
  bool is_plain = true;  // no sum takes its elements from several pieces, or out of order

  // The node with what moves its operands, over what they move: those become inputs l0, l1, ….
  int local(Graph& g, int node, bool is_root, std::vector<int>& leaves) const {
    const Node& n = rule.graph.nodes[static_cast<size_t>(node)];
    if (!is_root && !only_moves(n.kind)) {
      for (size_t k = 0; k < leaves.size(); ++k)
        if (leaves[k] == node) return static_cast<int>(k);
      TEGULA_CHECK(false);
    }
    std::vector<int> in;
    for (const int i : n.in) in.push_back(local(g, i, false, leaves));
    return *g.add(n.kind, std::move(in), n.attrs);
  }
  void find_leaves(int node, bool is_root, std::vector<int>& leaves) const {
    const Node& n = rule.graph.nodes[static_cast<size_t>(node)];
    if (is_root || only_moves(n.kind)) {
      for (const int i : n.in) find_leaves(i, false, leaves);
    } else if (std::find(leaves.begin(), leaves.end(), node) == leaves.end()) {
      leaves.push_back(node);
    }
  }
  // A sum's terms must lie in different places, and loops stand plainly in indices: the text says
  // in which, so that equal texts are equal orders.
  std::string order_of(int node) {
    std::vector<int> leaves;
    find_leaves(node, true, leaves);
    Graph g;
    for (size_t k = 0; k < leaves.size(); ++k)
      g.add_input(cat("l", k), rule.graph.nodes[static_cast<size_t>(leaves[k])].shape);
    Value sum = denote(g, local(g, node, true, leaves));
    std::string text;
    for (size_t a = 0; a < sum.size(); ++a) {
      std::string own;
      std::vector<Symbol> loops;  // without those that an equality ties to others: a reshape's
      for (const Symbol r : sum[a].bound)
        if (std::none_of(sum[a].guards.begin(), sum[a].guards.end(),
                         [&](const Guard& guard) { return guard.is_zero && guard.p.has(r); }))
          loops.push_back(r);
      for (const Factor& f : sum[a].factors)
        for (size_t d = 0; d < f.index.size(); ++d)
          for (size_t r = 0; r < loops.size(); ++r) {
            if (!f.index[d].has(loops[r])) continue;
            const Poly by = f.index[d].factor_of(loops[r]);
            is_plain = is_plain && (by.symbols().size() == 1 || by.constant() > 0);
            own += cat(" ", r);
          }
      text += text.find(own + ";") == std::string::npos ? own + ";" : "";
      std::vector<Guard> both = facts;
      append_facts(sum[a], g, both);
      for (size_t b = a + 1; b < sum.size(); ++b) {
        Term other = sum[b];
        for (size_t r = 0; r < other.bound.size(); ++r)
          substitute(other, other.bound[r], Poly(Symbol("q", static_cast<int64_t>(r))));
        std::vector<Guard> all = both;
        append_facts(other, g, all);
        is_plain = is_plain && !derive(all, {Poly(-1)}).empty();
      }
    }
    return text;
  }

  Ways ways(int node) {
    const Node& n = rule.graph.nodes[static_cast<size_t>(node)];
    if (n.kind == "input") {
      const std::string& name = n.attrs.words.find("name")->second;
      return {{name, {name}}};
    }
    Ways all;
    if (only_moves(n.kind)) {
      for (const int i : n.in) all.merge(ways(i));
      return all;
    }
    std::string head = n.kind;
    for (const auto& [name, word] : n.attrs.words)
      if (n.kind == "function") head += " " + word;
    for (const auto& [name, polys] : n.attrs.polys)
      if (name == "by" || name == "value" || name == "lo" || name == "hi" || name == "interior" ||
          name.ends_with("dilation") || name == "kernel")
        for (const Poly& p : polys) head += cat(" ", name, " ", p.text());
    if (n.kind == "dot" || n.kind == "conv" || n.kind.ends_with("_sum")) head += order_of(node);
    all = {{head + "(", {}}};
    for (const int i : n.in) {
      Ways longer;
      for (const auto& [before, taken] : all)
        for (const auto& [operand, inputs] : ways(i)) {
          std::set<std::string> both = taken;
          both.insert(inputs.begin(), inputs.end());
          longer[cat(before, operand, ",")] = std::move(both);
        }
      all = std::move(longer);
    }
    return all;
  }
};

// Equal elements take the same inputs: a way that the other side lacks is cut off where none of the
// other side's ways takes its inputs.
bool is_within(const Ways& part, const Ways& whole) {
  for (const auto& [way, inputs] : part)
    if (!whole.contains(way)) return false;
  for (const auto& [way, inputs] : whole)
    for (const auto& [other, others] : part)
      if (!part.contains(way) && others == inputs) return false;
  return true;
}
}  // namespace

std::string class_of(const Rule& rule) {
  Classifier c{rule, rule.where};
  for (const Guard& g : conditions(rule.graph, rule.left)) c.facts.push_back(g);
  const Ways left = c.ways(rule.left), right = c.ways(rule.right);
  return c.is_plain && (is_within(left, right) || is_within(right, left)) ? "exact" : "fast";
}

}  // namespace tegula::superopt
