// The exact choice against enumeration of everything on small random graphs, and against CBC.
#include "tegula/planner/choices.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>

#include "tegula/base/str.h"
#include "tegula/planner/choice_solver.h"
#include "tegula/planner/eliminate.h"

namespace tegula::planner {
namespace {

ChoiceProblem random_problem(uint32_t seed, int n, double density, int most_choices) {
  std::mt19937 bits(seed);
  std::uniform_real_distribution<double> u(0, 1);
  ChoiceProblem p;
  double least = 0, most = 0;
  for (int v = 0; v < n; ++v) {
    const auto k = 1 + bits() % static_cast<uint32_t>(most_choices);
    p.cost.emplace_back(), p.bytes.emplace_back();
    for (uint32_t i = 0; i < k; ++i)
      p.cost.back().push_back(u(bits)), p.bytes.back().push_back(u(bits));
    least += *std::min_element(p.bytes.back().begin(), p.bytes.back().end());
    most += *std::max_element(p.bytes.back().begin(), p.bytes.back().end());
    for (int w = 0; w < v; ++w) {
      if (u(bits) > density) continue;
      ChoiceProblem::Edge e{w, v, {}};
      for (size_t i = 0; i < p.cost[static_cast<size_t>(w)].size() * k; ++i)
        e.cost.push_back(u(bits) < 0.1 ? HUGE_VAL : 3 * u(bits) * u(bits));
      // A way must be left.
      e.cost[0] = 1;
      p.edges.push_back(e);
    }
  }
  p.limit = least + 0.35 * (most - least);
  return p;
}

// Every choice there is.
double enumerated(const ChoiceProblem& p, bool is_limited) {
  std::vector<int> x(p.cost.size(), 0);
  double best = HUGE_VAL;
  while (true) {
    double bytes = 0;
    for (size_t v = 0; v < x.size(); ++v) bytes += p.bytes[v][static_cast<size_t>(x[v])];
    if (!is_limited || bytes <= p.limit) best = std::min(best, cost_of(p, x));
    size_t v = 0;
    while (v < x.size() && ++x[v] == static_cast<int>(p.cost[v].size())) x[v++] = 0;
    if (v == x.size()) return best;
  }
}

TEST(Choices, AreTheBestOfAllOnEverySmallGraph) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    ChoiceProblem p =
        random_problem(seed, 2 + static_cast<int>(seed % 8), 0.2 + 0.1 * (seed % 7), 3);
    const double limited = enumerated(p, true);
    const auto within = choose(p);
    if (limited == HUGE_VAL) {
      EXPECT_FALSE(within.ok()) << seed;
    } else {
      ASSERT_TRUE(within.ok()) << seed << ": " << within.error().message;
      EXPECT_TRUE(within->is_exact) << seed;
      EXPECT_NEAR(within->cost, limited, 1e-9) << seed;
      EXPECT_NEAR(cost_of(p, within->choice), within->cost, 1e-12);
    }
    p.limit = HUGE_VAL;
    const auto free = choose(p);
    ASSERT_TRUE(free.ok());
    EXPECT_NEAR(free->cost, enumerated(p, false), 1e-9) << seed;
    // By branches alone, and by elimination alone.
    const std::vector<int> any(p.cost.size(), -1);
    EXPECT_NEAR(solve_choices(p, 0, any, 100000, 0).cost, free->cost, 1e-9) << seed;
    EXPECT_NEAR(cost_of(p, *eliminate(p, 1e9)), free->cost, 1e-9) << seed;
  }
}

TEST(Choices, LongChainsNeedNoBranch) {
  ChoiceProblem p = random_problem(5, 400, 0, 6);
  std::mt19937 bits(5);
  for (int v = 1; v < 400; ++v) {
    ChoiceProblem::Edge e{v - 1, v, {}};
    for (size_t i = 0;
         i < p.cost[static_cast<size_t>(v) - 1].size() * p.cost[static_cast<size_t>(v)].size(); ++i)
      e.cost.push_back(static_cast<double>(bits() % 100) / 30);
    p.edges.push_back(e);
  }
  p.limit = HUGE_VAL;
  const auto r = choose(p);
  EXPECT_EQ(r->n_branches, 0);
  // By dynamic programming from the left.
  std::vector<double> at = p.cost[0];
  for (size_t v = 1; v < 400; ++v) {
    std::vector<double> next(p.cost[v].size(), HUGE_VAL);
    for (size_t j = 0; j < next.size(); ++j)
      for (size_t i = 0; i < at.size(); ++i)
        next[j] =
            std::min(next[j], at[i] + p.edges[v - 1].cost[i * next.size() + j] + p.cost[v][j]);
    at = next;
  }
  EXPECT_NEAR(r->cost, *std::min_element(at.begin(), at.end()), 1e-9);
}

TEST(Choices, GiveUpWithABoundAndRefuseWhatCannotBe) {
  const ChoiceProblem p = [] {
    ChoiceProblem q = random_problem(3, 14, 1, 4);
    q.limit = HUGE_VAL;
    return q;
  }();
  const std::vector<int> free(p.cost.size(), -1);
  const SolvedChoices few = solve_choices(p, 0, free, 1, 0),
                      all = solve_choices(p, 0, free, 100000, 0);
  EXPECT_FALSE(all.gave_up);
  EXPECT_GT(all.n_branches, 1);
  EXPECT_TRUE(few.gave_up);
  EXPECT_LE(few.bound, all.cost + 1e-9);
  EXPECT_GE(few.cost, all.cost - 1e-9);
  // The answer by elimination is the same.
  const auto eliminated = choose(p, 0);
  EXPECT_TRUE(eliminated->is_exact);
  EXPECT_NEAR(eliminated->cost, all.cost, 1e-9);
  ChoiceProblem none = random_problem(1, 4, 1, 3);
  none.limit = 0;
  EXPECT_FALSE(choose(none).ok());
  ChoiceProblem wrong;
  wrong.cost = {{1, 2}, {3}};
  wrong.edges = {{0, 1, {1}}};
  EXPECT_FALSE(choose(wrong).ok());
}

// As an integer program: one binary for each choice, one for each pair on an edge.
std::string integer_program(const ChoiceProblem& p) {
  std::ostringstream out, rows;
  out << "Minimize\n obj: 0 zero\n";
  for (size_t v = 0; v < p.cost.size(); ++v) {
    rows << " one" << v << ":";
    for (size_t i = 0; i < p.cost[v].size(); ++i) {
      out << " + " << p.cost[v][i] << " x" << v << "_" << i << "\n";
      rows << " + x" << v << "_" << i;
    }
    rows << " = 1\n";
  }
  for (size_t n = 0; n < p.edges.size(); ++n) {
    const auto& e = p.edges[n];
    const auto u = static_cast<size_t>(e.u), v = static_cast<size_t>(e.v);
    for (size_t i = 0; i < p.cost[u].size(); ++i)
      for (size_t j = 0; j < p.cost[v].size(); ++j) {
        const double c = e.cost[i * p.cost[v].size() + j];
        const std::string name = cat("y", n, "_", i, "_", j);
        if (c == HUGE_VAL)
          rows << " not" << name << ": x" << u << "_" << i << " + x" << v << "_" << j << " <= 1\n";
        else {
          out << " + " << c << " " << name << "\n";
          rows << " both" << name << ": " << name << " - x" << u << "_" << i << " - x" << v << "_"
               << j << " >= -1\n";
        }
      }
  }
  rows << " memory:";
  for (size_t v = 0; v < p.cost.size(); ++v)
    for (size_t i = 0; i < p.cost[v].size(); ++i)
      rows << " + " << p.bytes[v][i] << " x" << v << "_" << i << "\n";
  rows << " <= " << p.limit << "\n";
  out << "Subject To\n" << rows.str() << " nothing: zero = 0\nBinaries\n";
  for (size_t v = 0; v < p.cost.size(); ++v)
    for (size_t i = 0; i < p.cost[v].size(); ++i) out << " x" << v << "_" << i << "\n";
  out << "End\n";
  return out.str();
}

// A ladder of `columns` by three, whose columns one after another are a path of 27 or 64 states.
TEST(Choices, LongNarrowGraphsAreEliminatedNotBranchedOver) {
  for (const size_t choices : {3, 4}) {
    std::mt19937 bits(static_cast<uint32_t>(choices));
    const auto any = [&] { return static_cast<double>(bits() % 1000); };
    constexpr int kColumns = 60;
    ChoiceProblem p;
    p.cost.resize(3 * kColumns, std::vector<double>(choices));
    for (auto& c : p.cost)
      for (double& x : c) x = any();
    const auto join = [&](int u, int v) {
      p.edges.push_back({u, v, std::vector<double>(choices * choices)});
      for (double& x : p.edges.back().cost) x = bits() % 9 == 0 ? HUGE_VAL : any();
    };
    for (int c = 0; c < kColumns; ++c) {
      join(3 * c, 3 * c + 1), join(3 * c + 1, 3 * c + 2), join(3 * c, 3 * c + 2);
      if (c > 0)
        for (int r = 0; r < 3; ++r)
          join(3 * c - 3 + r, 3 * c + r), join(3 * c - 3 + r, 3 * c + (r + 1) % 3);
    }
    const size_t states = choices * choices * choices;
    const auto digit = [&](size_t state, int row) {
      for (int r = 0; r < row; ++r) state /= choices;
      return state % choices;
    };
    std::vector<double> best(states, 0);
    for (int c = 0; c < kColumns; ++c) {
      std::vector<double> next(states, HUGE_VAL);
      for (size_t now = 0; now < states; ++now)
        for (size_t before = 0; before < (c > 0 ? states : 1); ++before) {
          double sum = c > 0 ? best[before] : 0;
          for (int r = 0; r < 3; ++r)
            sum += p.cost[3 * static_cast<size_t>(c) + static_cast<size_t>(r)][digit(now, r)];
          for (const ChoiceProblem::Edge& e : p.edges)
            if (e.v / 3 == c)
              sum += e.cost[digit(e.u / 3 == c ? now : before, e.u % 3) * choices +
                            digit(now, e.v % 3)];
          next[now] = std::min(next[now], sum);
        }
      best = next;
    }
    const auto r = choose(p, 0);
    ASSERT_TRUE(r.ok()) << r.error().message;
    EXPECT_TRUE(r->is_exact);
    EXPECT_EQ(r->n_branches, 0);
    EXPECT_EQ(r->cost, *std::min_element(best.begin(), best.end()));
    EXPECT_EQ(cost_of(p, r->choice), r->cost);
    const auto eliminated = eliminate(p, 1e9);
    ASSERT_TRUE(eliminated.has_value());
    EXPECT_EQ(cost_of(p, *eliminated), r->cost);
    EXPECT_FALSE(eliminate(p, 100).has_value());
  }
}

TEST(Choices, AgreeWithCbc) {
  if (std::system("command -v cbc > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "the solver cbc is not installed (Debian: coinor-cbc)";
  const std::string folder = ::testing::TempDir();
  for (uint32_t seed = 500; seed < 512; ++seed) {
    const ChoiceProblem p = random_problem(seed, 9, 0.5, 4);
    std::ofstream(folder + "/p.lp") << integer_program(p);
    const std::string command =
        cat("cbc ", folder, "/p.lp solve solution ", folder, "/p.sol > /dev/null 2>&1");
    ASSERT_EQ(std::system(command.c_str()), 0);
    std::ifstream file(folder + "/p.sol");
    std::string line;
    std::getline(file, line);
    const auto r = choose(p);
    if (line.find("Optimal") == line.npos) {
      EXPECT_FALSE(r.ok()) << line;
      continue;
    }
    ASSERT_TRUE(r.ok()) << r.error().message;
    EXPECT_NEAR(r->cost, std::stod(line.substr(line.find("value") + 5)), 1e-5) << seed;
  }
}

}  // namespace
}  // namespace tegula::planner
