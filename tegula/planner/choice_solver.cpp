#include "tegula/planner/choice_solver.h"

#include <map>

#include "tegula/base/algorithm.h"
#include "tegula/planner/eliminate.h"

namespace tegula::planner {

namespace {

using Costs = std::vector<double>;

// There may be a hundred thousand branches.
constexpr double kMostWorkOfABranch = 1e5;

struct Matrix {
  size_t rows = 0, columns = 0;
  Costs at;
  double operator()(size_t r, size_t c) const { return at[r * columns + c]; }
  Matrix turned() const {
    Matrix t{columns, rows, Costs(at.size())};
    for (size_t r = 0; r < rows; ++r)
      for (size_t c = 0; c < columns; ++c) t.at[c * rows + r] = at[r * columns + c];
    return t;
  }
};

// A graph that shrinks. Edges are kept from both ends.
struct Graph {
  std::vector<Costs> cost;  // empty: gone
  std::vector<std::map<int, Matrix>> edges;

  void add_edge(int u, int v, Matrix m) {
    const auto found = edges[static_cast<size_t>(u)].find(v);
    if (found != edges[static_cast<size_t>(u)].end())
      for (size_t i = 0; i < m.at.size(); ++i) m.at[i] += found->second.at[i];
    edges[static_cast<size_t>(v)][u] = m.turned();
    edges[static_cast<size_t>(u)][v] = std::move(m);
  }
  void remove(int u) {
    for (const auto& [v, m] : edges[static_cast<size_t>(u)]) edges[static_cast<size_t>(v)].erase(u);
    edges[static_cast<size_t>(u)].clear(), cost[static_cast<size_t>(u)].clear();
  }
};

// Edges give their minima to their ends.
double bound_of(Graph g) {
  for (size_t u = 0; u < g.cost.size(); ++u)
    for (auto& [v, m] : g.edges[u]) {
      if (static_cast<int>(u) > v) continue;
      const auto other = static_cast<size_t>(v);
      for (size_t i = 0; i < m.rows; ++i) {
        double low = HUGE_VAL;
        for (size_t j = 0; j < m.columns; ++j) low = std::min(low, m(i, j));
        g.cost[u][i] += low;
        if (low < HUGE_VAL)
          for (size_t j = 0; j < m.columns; ++j) m.at[i * m.columns + j] -= low;
      }
      for (size_t j = 0; j < m.columns; ++j) {
        double low = HUGE_VAL;
        for (size_t i = 0; i < m.rows; ++i) low = std::min(low, m(i, j));
        g.cost[other][j] += low;
      }
    }
  double sum = 0;
  for (const Costs& c : g.cost)
    if (!c.empty()) sum += c[least(c)];
  return sum;
}

// A node that was taken out, and what it chooses by once its neighbours have chosen.
struct Gone {
  int node;
  Costs cost;
  std::vector<std::pair<int, Matrix>> edges;  // [its choice][the neighbour's]
};

class Solver {
 public:
  Solver(size_t n, int64_t most_branches, double most_work)
      : choice_(n, 0), most_(most_branches), most_work_(most_work) {}

  void solve(Graph g, double spent) {
    const size_t depth = gone_.size();
    reduce(g, spent);
    const int node = widest(g);
    if (node < 0) {
      if (spent < best_ - kSame * std::fabs(spent)) keep(spent);
    } else if (const double bound = spent + bound_of(g); bound < best_ - kSame * std::fabs(bound)) {
      if (!take_out_all(g, spent)) branch(g, spent, node);
    }
    gone_.resize(depth);
  }

  double best_ = HUGE_VAL;
  std::vector<int> best_choice_;
  int64_t branches_ = 0;
  bool gave_up_ = false;

 private:
  // Nodes of at most two neighbours or of one choice; then choices that another one beats whatever
  // the neighbours choose, and edges that say nothing any more; and again.
  void reduce(Graph& g, double& spent) {
    for (bool any = true; any;) {
      any = false;
      for (size_t u = 0; u < g.cost.size(); ++u) {
        if (g.cost[u].empty()) continue;
        if (g.edges[u].size() <= 2) {
          take_out(g, static_cast<int>(u), spent);
          any = true;
        } else if (const auto [only, n] = alive(g.cost[u]); n == 1) {
          fix(g, static_cast<int>(u), only, spent);
          any = true;
        }
      }
      if (any) continue;
      for (size_t u = 0; u < g.cost.size(); ++u)
        if (!g.cost[u].empty()) any |= drop_beaten(g, u);
      any |= drop_edges(g);
    }
  }

  static std::pair<size_t, size_t> alive(const Costs& c) {
    size_t last = 0, n = 0;
    for (size_t i = 0; i < c.size(); ++i)
      if (c[i] < HUGE_VAL) last = i, ++n;
    return {last, n};
  }

  // The node chooses i.
  void fix(Graph& g, int u, size_t i, double& spent) {
    const auto at = static_cast<size_t>(u);
    spent += g.cost[at][i];
    for (const auto& [v, m] : g.edges[at])
      for (size_t j = 0; j < m.columns; ++j) g.cost[static_cast<size_t>(v)][j] += m(i, j);
    Costs fixed(g.cost[at].size(), HUGE_VAL);
    fixed[i] = 0;
    gone_.push_back({u, std::move(fixed), {}});
    g.remove(u);
  }

  // i falls if some j has c_i − c_j + Σ_v min_k (R_ik − R_jk) ≥ 0. [Goldstein 1994]
  static bool drop_beaten(Graph& g, size_t u) {
    Costs& c = g.cost[u];
    bool any = false;
    for (size_t i = 0; i < c.size(); ++i) {
      if (c[i] == HUGE_VAL) continue;
      for (size_t j = 0; j < c.size(); ++j) {
        if (j == i || c[j] == HUGE_VAL || !is_beaten(g, u, i, j)) continue;
        c[i] = HUGE_VAL, any = true;
        break;
      }
    }
    return any;
  }

  static bool is_beaten(const Graph& g, size_t u, size_t i, size_t j) {
    double gap = g.cost[u][i] - g.cost[u][j];
    for (const auto& [v, m] : g.edges[u]) {
      double low = HUGE_VAL;
      for (size_t k = 0; k < m.columns; ++k) {
        if (g.cost[static_cast<size_t>(v)][k] == HUGE_VAL || m(i, k) == HUGE_VAL) continue;
        low = std::min(low, m(i, k) - m(j, k));
      }
      gap += low;
      if (gap < 0) return false;
    }
    return gap >= 0;
  }

  // An edge whose cost is a sum of its ends' shares goes.
  static bool drop_edges(Graph& g) {
    bool any = false;
    for (size_t u = 0; u < g.cost.size(); ++u)
      for (auto it = g.edges[u].begin(); it != g.edges[u].end();) {
        const auto v = static_cast<size_t>(it->first);
        const Matrix m = it->second;
        ++it;
        if (v < u || !is_sum(g, u, v, m)) continue;
        const size_t base = alive(g.cost[u]).first, first = alive(g.cost[v]).first;
        for (size_t i = 0; i < m.rows; ++i) g.cost[u][i] += m(i, first) - m(base, first);
        for (size_t k = 0; k < m.columns; ++k) g.cost[v][k] += m(base, k);
        g.edges[u].erase(static_cast<int>(v)), g.edges[v].erase(static_cast<int>(u));
        any = true;
      }
    return any;
  }

  static bool is_sum(const Graph& g, size_t u, size_t v, const Matrix& m) {
    const size_t base = alive(g.cost[u]).first, first = alive(g.cost[v]).first;
    for (size_t i = 0; i < m.rows; ++i)
      for (size_t k = 0; k < m.columns; ++k) {
        if (g.cost[u][i] == HUGE_VAL || g.cost[v][k] == HUGE_VAL) continue;
        const double sum = m(i, first) + m(base, k) - m(base, first);
        if (!(std::fabs(m(i, k) - sum) <= kSame * std::fabs(m(i, k)))) return false;
      }
    return true;
  }

  void take_out(Graph& g, int u, double& spent) {
    const auto at = static_cast<size_t>(u);
    Gone gone{u, g.cost[at], {}};
    for (const auto& [v, m] : g.edges[at]) gone.edges.emplace_back(v, m);
    const Costs& c = gone.cost;
    if (gone.edges.empty()) {
      spent += c[least(c)];
    } else if (gone.edges.size() == 1) {
      const auto& [v, m] = gone.edges[0];
      for (size_t j = 0; j < m.columns; ++j) {
        double low = HUGE_VAL;
        for (size_t i = 0; i < m.rows; ++i) low = std::min(low, c[i] + m(i, j));
        g.cost[static_cast<size_t>(v)][j] += low;
      }
    } else {
      const auto& [v, a] = gone.edges[0];
      const auto& [w, b] = gone.edges[1];
      Matrix joined{a.columns, b.columns, Costs(a.columns * b.columns, HUGE_VAL)};
      for (size_t i = 0; i < a.rows; ++i)
        for (size_t j = 0; j < a.columns; ++j)
          for (size_t k = 0; k < b.columns; ++k) {
            double& low = joined.at[j * b.columns + k];
            low = std::min(low, c[i] + a(i, j) + b(i, k));
          }
      const int to = w;
      g.remove(u);
      g.add_edge(v, to, std::move(joined));
      gone_.push_back(std::move(gone));
      return;
    }
    g.remove(u);
    gone_.push_back(std::move(gone));
  }

  // Takes out what is left, if it is narrow enough.
  bool take_out_all(const Graph& g, double spent) {
    ChoiceProblem p;
    std::vector<int> place(g.cost.size(), -1), nodes;
    std::vector<std::vector<size_t>> kept;
    for (size_t u = 0; u < g.cost.size(); ++u) {
      if (g.cost[u].empty()) continue;
      place[u] = static_cast<int>(nodes.size()), nodes.push_back(static_cast<int>(u));
      kept.emplace_back(), p.cost.emplace_back();
      for (size_t i = 0; i < g.cost[u].size(); ++i)
        if (g.cost[u][i] < HUGE_VAL)
          kept.back().push_back(i), p.cost.back().push_back(g.cost[u][i]);
      if (kept.back().empty()) return true;  // no solution
    }
    for (const int u : nodes)
      for (const auto& [v, m] : g.edges[static_cast<size_t>(u)]) {
        if (v < u) continue;
        ChoiceProblem::Edge e{place[static_cast<size_t>(u)], place[static_cast<size_t>(v)], {}};
        for (const size_t i : kept[static_cast<size_t>(e.u)])
          for (const size_t k : kept[static_cast<size_t>(e.v)]) e.cost.push_back(m(i, k));
        p.edges.push_back(std::move(e));
      }
    const auto chosen = eliminate(p, branches_ == 0 ? most_work_ : kMostWorkOfABranch);
    if (!chosen) return false;
    const double cost = spent + cost_of(p, *chosen);
    for (size_t n = 0; n < nodes.size(); ++n)
      choice_[static_cast<size_t>(nodes[n])] =
          static_cast<int>(kept[n][static_cast<size_t>((*chosen)[n])]);
    if (cost < best_ - kSame * std::fabs(cost)) keep(cost);
    return true;
  }

  static int widest(const Graph& g) {
    int node = -1;
    size_t most = 0;
    for (size_t u = 0; u < g.cost.size(); ++u)
      if (!g.cost[u].empty() && (node < 0 || g.edges[u].size() > most))
        node = static_cast<int>(u), most = g.edges[u].size();
    return node;
  }

  void branch(const Graph& g, double spent, int node) {
    const auto at = static_cast<size_t>(node);
    // The most promising choice first.
    std::vector<std::pair<double, size_t>> order;
    for (size_t i = 0; i < g.cost[at].size(); ++i) {
      double sum = g.cost[at][i];
      for (const auto& [v, m] : g.edges[at]) {
        double low = HUGE_VAL;
        for (size_t j = 0; j < m.columns; ++j)
          low = std::min(low, m(i, j) + g.cost[static_cast<size_t>(v)][j]);
        sum += low;
      }
      if (sum < HUGE_VAL) order.emplace_back(sum, i);
    }
    std::sort(order.begin(), order.end());
    for (const auto& [promise, i] : order) {
      if (branches_ >= most_ && best_ < HUGE_VAL) {
        gave_up_ = true;
        return;
      }
      ++branches_;
      Graph next = g;
      double more = spent;
      fix(next, node, i, more);
      solve(std::move(next), more);
      gone_.pop_back();
    }
  }

  void keep(double spent) {
    for (size_t n = gone_.size(); n-- > 0;) {
      Costs c = gone_[n].cost;
      for (const auto& [v, m] : gone_[n].edges)
        for (size_t i = 0; i < c.size(); ++i)
          c[i] += m(i, static_cast<size_t>(choice_[static_cast<size_t>(v)]));
      choice_[static_cast<size_t>(gone_[n].node)] = static_cast<int>(least(c));
    }
    best_ = spent, best_choice_ = choice_;
  }

  std::vector<Gone> gone_;
  std::vector<int> choice_;
  int64_t most_;
  double most_work_;
};

Graph graph_of(const ChoiceProblem& p, double multiplier, const std::vector<int>& fixed) {
  Graph g;
  g.cost = p.cost, g.edges.resize(p.cost.size());
  for (size_t v = 0; v < p.cost.size(); ++v)
    for (size_t i = 0; i < p.cost[v].size(); ++i) {
      if (multiplier > 0) g.cost[v][i] += multiplier * p.bytes[v][i];
      if (fixed[v] >= 0 && fixed[v] != static_cast<int>(i)) g.cost[v][i] = HUGE_VAL;
    }
  for (const ChoiceProblem::Edge& e : p.edges)
    g.add_edge(
        e.u, e.v,
        {p.cost[static_cast<size_t>(e.u)].size(), p.cost[static_cast<size_t>(e.v)].size(), e.cost});
  return g;
}

}  // namespace

SolvedChoices solve_choices(const ChoiceProblem& p, double multiplier,
                            const std::vector<int>& fixed, int64_t most_branches,
                            double most_work) {
  Solver s(p.cost.size(), most_branches, most_work);
  const Graph g = graph_of(p, multiplier, fixed);
  s.solve(g, 0);
  return {s.best_choice_, s.best_, bound_of(g), s.branches_, s.gave_up_};
}

}  // namespace tegula::planner
