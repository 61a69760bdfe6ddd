#include "tegula/planner/choices.h"

#include "tegula/base/algorithm.h"
#include "tegula/planner/choice_solver.h"

namespace tegula::planner {

namespace {

// Sums that elimination may take: seconds where all is solved at once, little where it is many
// times.
constexpr double kMostWork = 3e9, kMostWorkOfMany = 1e6;

double bytes_of(const ChoiceProblem& p, const std::vector<int>& choice) {
  double sum = 0;
  for (size_t v = 0; v < p.bytes.size(); ++v) sum += p.bytes[v][static_cast<size_t>(choice[v])];
  return sum;
}

// Within a limit: what a multiplier leaves open is branched over.
class Limited {
 public:
  Limited(const ChoiceProblem& p, int64_t most) : p_(p), most_(most) {}

  Result<ChoiceResult> run() {
    std::vector<int> fixed(p_.cost.size(), -1);
    double low = 0;
    for (const std::vector<double>& b : p_.bytes) low += b[least(b)];
    if (low > p_.limit)
      return invalid_argument(
          cat("no choice takes at most ", p_.limit, " bytes: the least is ", low));
    result_.cost = HUGE_VAL;
    find_multiplier(fixed);
    result_.bound = bound(fixed);
    search(fixed, 0);
    if (result_.choice.empty())
      return invalid_argument(
          cat("none of ", result_.n_branches, " branches meets the limit of ", p_.limit, " bytes"));
    if (!gave_up_) result_.bound = result_.cost, result_.is_exact = true;
    return result_;
  }

 private:
  ChoiceResult relaxed(double multiplier, const std::vector<int>& fixed) {
    const SolvedChoices s = solve_choices(p_, multiplier, fixed, most_, kMostWorkOfMany);
    ChoiceResult r;
    r.choice = s.choice, r.cost = s.cost;
    if (s.gave_up) gave_up_ = true;
    offer(r.choice);
    return r;
  }

  void offer(const std::vector<int>& choice) {
    if (choice.empty() || bytes_of(p_, choice) > p_.limit) return;
    if (const double c = cost_of(p_, choice); c < result_.cost)
      result_.cost = c, result_.choice = choice;
  }

  // The least multiplier whose solution meets the limit, by halving.
  void find_multiplier(const std::vector<int>& fixed) {
    double high = 1e-15;
    while (high < 1e15 && bytes_of(p_, relaxed(high, fixed).choice) > p_.limit) high *= 8;
    double low = high / 8;
    for (int i = 0; i < 30; ++i) {
      const double middle = (low + high) / 2;
      (bytes_of(p_, relaxed(middle, fixed).choice) > p_.limit ? low : high) = middle;
    }
    multiplier_ = high;
  }

  double bound(const std::vector<int>& fixed) {
    const double at = relaxed(multiplier_, fixed).cost - multiplier_ * p_.limit;
    return std::max(at, relaxed(0, fixed).cost);
  }

  void search(std::vector<int>& fixed, size_t node) {
    if (result_.n_branches >= most_) {
      gave_up_ = true;
      return;
    }
    ++result_.n_branches;
    double low = 0;
    for (size_t v = 0; v < fixed.size(); ++v)
      low += fixed[v] >= 0 ? p_.bytes[v][static_cast<size_t>(fixed[v])]
                           : p_.bytes[v][least(p_.bytes[v])];
    if (low > p_.limit) return;
    const double b = bound(fixed);
    if (!(b < result_.cost - kSame * std::fabs(b)) || node == fixed.size()) return;
    for (size_t i = 0; i < p_.cost[node].size(); ++i) {
      if (p_.cost[node][i] == HUGE_VAL) continue;
      fixed[node] = static_cast<int>(i);
      search(fixed, node + 1);
    }
    fixed[node] = -1;
  }

  const ChoiceProblem& p_;
  const int64_t most_;
  ChoiceResult result_;
  double multiplier_ = 0;
  bool gave_up_ = false;
};

Status check(const ChoiceProblem& p) {
  const int n = static_cast<int>(p.cost.size());
  for (const ChoiceProblem::Edge& e : p.edges) {
    if (e.u < 0 || e.v < 0 || e.u >= n || e.v >= n || e.u == e.v)
      return invalid_argument(cat("an edge from ", e.u, " to ", e.v, " of ", n, " nodes"));
    const size_t want =
        p.cost[static_cast<size_t>(e.u)].size() * p.cost[static_cast<size_t>(e.v)].size();
    if (e.cost.size() != want)
      return invalid_argument(
          cat("the edge from ", e.u, " to ", e.v, " has ", e.cost.size(), " costs, not ", want));
  }
  for (size_t v = 0; v < p.cost.size(); ++v)
    if (p.cost[v].empty()) return invalid_argument(cat("node ", v, " has no choice"));
  return {};
}

}  // namespace

double cost_of(const ChoiceProblem& p, const std::vector<int>& choice) {
  double sum = 0;
  for (size_t v = 0; v < p.cost.size(); ++v) sum += p.cost[v][static_cast<size_t>(choice[v])];
  for (const ChoiceProblem::Edge& e : p.edges)
    sum += e.cost[static_cast<size_t>(choice[static_cast<size_t>(e.u)]) *
                      p.cost[static_cast<size_t>(e.v)].size() +
                  static_cast<size_t>(choice[static_cast<size_t>(e.v)])];
  return sum;
}

Result<ChoiceResult> choose(const ChoiceProblem& p, int64_t most_branches) {
  TEGULA_TRY(check(p));
  const std::vector<int> free(p.cost.size(), -1);
  const SolvedChoices s = solve_choices(p, 0, free, most_branches, kMostWork);
  if (s.choice.empty() && !p.cost.empty())
    return invalid_argument("every choice has an infinite cost: some edge allows none");
  ChoiceResult r;
  r.choice = s.choice, r.cost = p.cost.empty() ? 0 : cost_of(p, r.choice);
  r.n_branches = s.n_branches, r.is_exact = !s.gave_up;
  r.bound = r.is_exact ? r.cost : s.bound;
  if (p.bytes.empty() || bytes_of(p, r.choice) <= p.limit) return r;
  return Limited(p, most_branches).run();
}

}  // namespace tegula::planner
