// Choices: one of several for every node, so that what the nodes and the edges between them cost
// together is least; the problem that an intra-operator plan is. [Zheng et al. 2022, section 4.2]
//
//   minimise Σ_v c_v[x_v] + Σ_(u,v) R_uv[x_u, x_v]   subject to Σ_v m_v[x_v] ≤ limit
//
// Exact: nodes of one neighbour are folded into it and nodes of two become an edge between them,
// which solves trees and series-parallel graphs outright [Scholz and Eckstein 2002]; choices that
// another one beats whatever the neighbours choose are dropped [Goldstein 1994], and edges that are
// a sum of their ends' shares; what is left is eliminated, where it is narrow (eliminate.h), else
// branches on its node of most neighbours and is reduced again. Bound: edges hand their rows' and
// columns' minima to the nodes; the sum of the nodes' minima is below every solution. A limit is
// taken into the costs by a multiplier (c + λ·m), whose best value bounds; what is left of the gap
// is branched away.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "tegula/base/result.h"

namespace tegula::planner {

struct ChoiceProblem {
  std::vector<std::vector<double>> cost;  // [node][choice]; infinite: cannot be
  struct Edge {
    int u = 0, v = 0;
    std::vector<double> cost;  // [choice of u][choice of v], row-major
  };
  std::vector<Edge> edges;
  std::vector<std::vector<double>> bytes;  // [node][choice]; empty: no limit
  double limit = HUGE_VAL;
};

struct ChoiceResult {
  std::vector<int> choice;
  double cost = 0;
  double bound = 0;  // no solution is below it; the cost, if it is exact
  bool is_exact = false;
  int64_t n_branches = 0;
};

// The cost that the problem gives to a choice.
double cost_of(const ChoiceProblem& problem, const std::vector<int>& choice);
// At most so many branches, then the best so far. Errors: an edge to a node that is not there, or
// of another size; no choice meets the limit, with the least that one takes.
Result<ChoiceResult> choose(const ChoiceProblem& problem, int64_t most_branches = 100000);

}  // namespace tegula::planner
