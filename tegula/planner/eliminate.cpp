#include "tegula/planner/eliminate.h"

#include <set>

#include "tegula/base/algorithm.h"

namespace tegula::planner {

namespace {

using Neighbours = std::vector<std::set<int>>;

size_t index(int node) { return static_cast<size_t>(node); }

Neighbours neighbours_of(const ChoiceProblem& p) {
  Neighbours all(p.cost.size());
  for (const ChoiceProblem::Edge& e : p.edges)
    all[index(e.u)].insert(e.v), all[index(e.v)].insert(e.u);
  return all;
}

struct Order {
  std::vector<int> nodes;
  double work = 0;
};

// A node's own and its neighbours' choices together.
double product(const ChoiceProblem& p, const Neighbours& around, int u) {
  auto size = static_cast<double>(p.cost[index(u)].size());
  for (const int v : around[index(u)]) size *= static_cast<double>(p.cost[index(v)].size());
  return size;
}

int64_t new_neighbours(const Neighbours& around, int u) {
  int64_t n = 0;
  const std::set<int>& a = around[index(u)];
  for (const int v : a)
    for (const int w : a) n += v < w && !around[index(v)].contains(w);
  return n;
}

Order order_of(const ChoiceProblem& p, bool by_product) {
  Neighbours around = neighbours_of(p);
  std::vector<int> left(p.cost.size());
  for (size_t v = 0; v < left.size(); ++v) left[v] = static_cast<int>(v);
  Order order;
  const auto key = [&](int u) {
    const double size = product(p, around, u);
    return std::pair(by_product ? 0.0 : static_cast<double>(new_neighbours(around, u)), size);
  };
  // Only who stands beside a node that went has another key.
  std::vector<std::pair<double, double>> keys;
  for (const int u : left) keys.push_back(key(u));
  while (!left.empty()) {
    const auto next = std::min_element(
        left.begin(), left.end(), [&](int a, int b) { return keys[index(a)] < keys[index(b)]; });
    const int u = *next;
    left.erase(next);
    order.nodes.push_back(u), order.work += product(p, around, u);
    const std::set<int> a = around[index(u)];
    std::set<int> changed = a;
    for (const int v : a) {
      around[index(v)].erase(u);
      for (const int w : a)
        if (w != v) around[index(v)].insert(w);
    }
    for (const int v : a) changed.insert(around[index(v)].begin(), around[index(v)].end());
    for (const int v : changed) keys[index(v)] = key(v);
  }
  return order;
}

// Costs over the choices of the nodes of a scope, the last one's varying fastest.
struct Table {
  std::vector<int> scope;
  std::vector<double> at;
};

// The choice of a node, over the choices of a scope.
struct Answer {
  int node = 0;
  std::vector<int> scope;
  std::vector<uint8_t> choice;
};

class Elimination {
 public:
  explicit Elimination(const ChoiceProblem& p) : p_(p), of_(p.cost.size()) {
    for (size_t v = 0; v < p.cost.size(); ++v) add({{static_cast<int>(v)}, p.cost[v]});
    for (const ChoiceProblem::Edge& e : p.edges) add({{e.u, e.v}, e.cost});
  }

  std::vector<int> run(const std::vector<int>& order) {
    for (const int u : order) take_out(u);
    std::vector<int> choice(p_.cost.size(), 0);
    for (size_t n = answers_.size(); n-- > 0;) {
      const Answer& a = answers_[n];
      size_t at = 0;
      for (const int v : a.scope) at = at * choices(v) + index(choice[index(v)]);
      choice[index(a.node)] = a.choice[at];
    }
    return choice;
  }

 private:
  // A table while it is added up: where its entry lies, and by how much a choice moves that.
  struct Cursor {
    const double* at = nullptr;
    size_t of_node = 0;
    std::vector<size_t> of_scope;  // by place in the scope
  };

  size_t choices(int v) const { return p_.cost[index(v)].size(); }
  void add(Table t) {
    for (const int v : t.scope) of_[index(v)].insert(tables_.size());
    tables_.push_back(std::move(t));
  }

  Cursor cursor_of(const Table& t, int u, const std::vector<int>& scope) const {
    Cursor c{t.at.data(), 0, std::vector<size_t>(scope.size(), 0)};
    size_t stride = 1;
    for (size_t i = t.scope.size(); i-- > 0; stride *= choices(t.scope[i])) {
      const auto found = std::find(scope.begin(), scope.end(), t.scope[i]);
      if (t.scope[i] == u)
        c.of_node = stride;
      else
        c.of_scope[static_cast<size_t>(found - scope.begin())] = stride;
    }
    return c;
  }

  void take_out(int u) {
    const std::set<size_t> mine = of_[index(u)];
    std::set<int> around;
    for (const size_t t : mine) around.insert(tables_[t].scope.begin(), tables_[t].scope.end());
    around.erase(u);
    Table joined{{around.begin(), around.end()}, {}};
    std::vector<Cursor> cursors;
    for (const size_t t : mine) cursors.push_back(cursor_of(tables_[t], u, joined.scope));
    size_t size = 1;
    for (const int v : joined.scope) size *= choices(v);
    joined.at.resize(size);
    Answer answer{u, joined.scope, std::vector<uint8_t>(size)};
    std::vector<size_t> digits(joined.scope.size(), 0);
    for (size_t entry = 0; entry < size; ++entry) {
      double best = HUGE_VAL;
      for (size_t i = 0; i < choices(u); ++i) {
        double sum = 0;
        for (const Cursor& c : cursors) sum += c.at[i * c.of_node];
        if (sum < best) best = sum, answer.choice[entry] = static_cast<uint8_t>(i);
      }
      joined.at[entry] = best;
      step(joined.scope, digits, cursors);
    }
    for (const size_t t : mine) {
      for (const int v : tables_[t].scope) of_[index(v)].erase(t);
      tables_[t] = {};
    }
    answers_.push_back(std::move(answer));
    if (!joined.scope.empty()) add(std::move(joined));
  }

  void step(const std::vector<int>& scope, std::vector<size_t>& digits,
            std::vector<Cursor>& cursors) const {
    for (size_t i = scope.size(); i-- > 0;) {
      const bool wraps = ++digits[i] == choices(scope[i]);
      for (Cursor& c : cursors)
        c.at = wraps ? c.at - (digits[i] - 1) * c.of_scope[i] : c.at + c.of_scope[i];
      if (!wraps) return;
      digits[i] = 0;
    }
  }

  const ChoiceProblem& p_;
  std::vector<Table> tables_;
  std::vector<std::set<size_t>> of_;  // of each node the tables whose scope it is in
  std::vector<Answer> answers_;
};

}  // namespace

std::optional<std::vector<int>> eliminate(const ChoiceProblem& p, double most_work) {
  for (const std::vector<double>& c : p.cost)
    if (c.size() > 256) return std::nullopt;
  const Order a = order_of(p, true), b = order_of(p, false);
  const Order& order = a.work <= b.work ? a : b;
  if (order.work > most_work) return std::nullopt;
  return Elimination(p).run(order.nodes);
}

}  // namespace tegula::planner
