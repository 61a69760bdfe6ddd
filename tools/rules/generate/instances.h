// Where a rule's side stands in a graph, and the graph with the other side in its place.
#pragma once

#include "tegula/passes/superopt/program.h"

namespace tegula::superopt {

struct Instance {
  std::map<std::string, int> inputs;             // of the rule, to nodes of the graph
  std::map<std::string, std::string> functions;  // of the rule, to a kind or function
  std::map<Symbol, Poly> symbols;                // sizes, integers and scalars of the rule
};

// Every way in which the rule's `side` (rule.left or rule.right) denotes the graph's `node`, with
// all its symbols bound and its conditions derived from `facts`. Operands of add, mul and max may
// be exchanged.
std::vector<Instance> instances_of(const Rule& rule, int side, const Graph& graph, int node,
                                   std::span<const Guard> facts);
// The rule's `side` with what the match bound, added to the graph. Errors: what an op refuses.
Result<int> instantiate(const Rule& rule, int side, const Instance& instance, Graph& graph);
// `root` with `by` in the place of `node`.
Result<int> replaced(Graph& graph, int root, int node, int by);
// All nodes that `root` is made of, operands first.
std::vector<int> nodes_of(const Graph& graph, int root);

}  // namespace tegula::superopt
