#include "tegula/planner/baselines.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "tegula/base/philox.h"
#include "tegula/planner/enumerate.h"

namespace tegula::planner {

namespace {

// A choice of one value for each setting, by its index.
using Choice = std::vector<size_t>;

class Space {
 public:
  Space(StepPricer& pricer, const ModelSpec& model, const ClusterSpec& cluster)
      : pricer_(pricer), model_(model), cluster_(cluster) {
    const std::vector<int64_t> parts = divisors(cluster.n_devices);
    std::vector<int64_t> batches;
    for (int64_t b = 1; b <= kMostMicrobatch; b *= 2) batches.push_back(b);
    values_ = {parts,
               parts,
               parts,
               model.is_moe() ? divisors(model.n_experts) : std::vector<int64_t>{1},
               {0, 1, 2, 3},
               {0, 1},
               {0, 1, 2, 3, 4, 5, 6, 7, 8},
               {1, 2, 3, 4, 6, 8},
               batches,
               {0, 1, 2, 3}};
  }

  size_t n_settings() const { return values_.size(); }
  size_t n_values(size_t setting) const { return values_[setting].size(); }

  // Infinite: it does not divide.
  double cost(const Choice& c, BaselineResult& best) {
    const Layout l = layout(c);
    if (l.dp == 0 || !check_layout(l, model_, cluster_, pricer_.job()).ok()) return HUGE_VAL;
    const StepPrice p = pricer_.price(l);
    const double step = p.step_s(),
                 over = p.peak_bytes() / usable_bytes(cluster_, pricer_.job(), l);
    if (over > 1) return step * 10 * over;
    if (!best.found || step < best.step_s) best.found = true, best.layout = l, best.step_s = step;
    return step;
  }

 private:
  Layout layout(const Choice& c) const {
    const auto at = [&](size_t i) { return values_[i][c[i]]; };
    Layout l;
    l.tp = at(0), l.pp = at(1), l.cp = at(2), l.ep = at(3);
    l.zero = static_cast<int>(at(4)), l.sp = at(5) != 0;
    // One setting for what only one schedule has: chunks, or slices.
    l.turns = static_cast<Turns>(at(6)), l.microbatch = at(8);
    (l.turns == Turns::kTeraPipe ? l.slices : l.interleave) = at(7);
    l.remat = static_cast<Remat>(at(9));
    const int64_t others = l.tp * l.pp * l.cp;
    l.dp = others <= cluster_.n_devices && cluster_.n_devices % others == 0
               ? cluster_.n_devices / others
               : 0;
    return l;
  }

  StepPricer& pricer_;
  const ModelSpec& model_;
  const ClusterSpec& cluster_;
  std::vector<std::vector<int64_t>> values_;
};

class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}
  double uniform() {
    if (at_ == 4)
      block_ = philox4x32({static_cast<uint32_t>(next_++), 0, 0, 0},
                          {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)}),
      at_ = 0;
    return (static_cast<double>(block_[at_++]) + 0.5) / 4294967296.0;
  }
  size_t below(size_t n) {
    return std::min(n - 1, static_cast<size_t>(uniform() * static_cast<double>(n)));
  }
  // By weights that sum to anything above 0.
  size_t weighted(const std::vector<double>& weights) {
    double sum = 0;
    for (const double w : weights) sum += w;
    double left = uniform() * sum;
    for (size_t i = 0; i + 1 < weights.size(); ++i)
      if ((left -= weights[i]) < 0) return i;
    return weights.size() - 1;
  }

 private:
  uint64_t seed_, next_ = 0;
  std::array<uint32_t, 4> block_{};
  size_t at_ = 4;
};

Choice any(const Space& s, Draws& draws) {
  Choice c(s.n_settings());
  for (size_t i = 0; i < c.size(); ++i) c[i] = draws.below(s.n_values(i));
  return c;
}

// Every search proposes a choice and hears what it cost: this one any.
class Proposer {
 public:
  Proposer(const Space& s, Draws& d) : space_(s), draws_(d) {}
  virtual ~Proposer() = default;
  virtual Choice propose() { return any(space_, draws_); }
  virtual void hear(const Choice&, double) {}

 protected:
  const Space& space_;
  Draws& draws_;
};

class Mcmc : public Proposer {
 public:
  using Proposer::Proposer;
  Choice propose() override {
    Choice c = now_;
    // A mesh's factors only change together: one or two settings at a time.
    for (size_t n = 1 + draws_.below(2); n > 0; --n) {
      const size_t i = draws_.below(c.size());
      c[i] = draws_.below(space_.n_values(i));
    }
    return c;
  }
  void hear(const Choice& c, double cost) override {
    best_ = std::min(best_, cost);
    const bool is_better = cost <= cost_;  // infinity is as good as infinity
    if (!is_better && !(draws_.uniform() < std::exp(-kBeta * (cost - cost_) / best_))) return;
    now_ = c, cost_ = cost;
  }

 private:
  static constexpr double kBeta = 20;
  Choice now_ = any(space_, draws_);
  double cost_ = HUGE_VAL, best_ = HUGE_VAL;
};

class Policy : public Proposer {
 public:
  Policy(const Space& s, Draws& d) : Proposer(s, d) {
    for (size_t i = 0; i < s.n_settings(); ++i) logits_.emplace_back(s.n_values(i), 0.0);
  }
  Choice propose() override {
    Choice c(logits_.size());
    for (size_t i = 0; i < c.size(); ++i) c[i] = draws_.weighted(chances(i));
    return c;
  }
  void hear(const Choice& c, double cost) override {
    // The square root of the time, as ColocRL has it; what cannot be is as bad as the worst seen.
    if (std::isfinite(cost)) worst_ = std::max(worst_, cost);
    const double reward = -std::sqrt(std::isfinite(cost) ? cost : worst_);
    if (!has_mean_) mean_ = reward, has_mean_ = true;
    const double advantage = (reward - mean_) / std::sqrt(worst_);
    mean_ += 0.05 * (reward - mean_);
    for (size_t i = 0; i < c.size(); ++i) {
      const std::vector<double> p = chances(i);
      for (size_t v = 0; v < p.size(); ++v)
        logits_[i][v] += kRate * advantage * ((v == c[i] ? 1 : 0) - p[v]);
    }
  }

 private:
  static constexpr double kRate = 0.5;
  std::vector<double> chances(size_t setting) const {
    std::vector<double> p;
    const auto& l = logits_[setting];
    const double most = *std::max_element(l.begin(), l.end());
    double sum = 0;
    for (const double x : l) sum += p.emplace_back(std::exp(x - most));
    for (double& x : p) x /= sum;
    return p;
  }
  std::vector<std::vector<double>> logits_;
  double mean_ = 0, worst_ = 1;
  bool has_mean_ = false;
};

class Bayes : public Proposer {
 public:
  using Proposer::Proposer;
  Choice propose() override {
    std::stable_sort(seen_.begin(), seen_.end(),
                     [](const Seen& a, const Seen& b) { return a.cost < b.cost; });
    const auto n_finite = static_cast<size_t>(
        std::ranges::count_if(seen_, [](const Seen& s) { return std::isfinite(s.cost); }));
    if (seen_.size() < kStart || n_finite < kFewest) return any(space_, draws_);
    const size_t n_good = std::min({n_finite, std::max(seen_.size() / 4, kFewest), kMostGood});
    const auto good = densities(0, n_good), rest = densities(n_good, seen_.size());
    // Prices do not change, so that nothing is tried twice.
    Choice best = any(space_, draws_);
    double best_ratio = -HUGE_VAL;
    for (int draw = 0; draw < kDraws; ++draw) {
      Choice c(space_.n_settings());
      double ratio = 0;
      for (size_t i = 0; i < c.size(); ++i) {
        c[i] = draws_.weighted(good[i]);
        ratio += std::log(good[i][c[i]] / rest[i][c[i]]);
      }
      if (ratio > best_ratio && !tried_.contains(c)) best_ratio = ratio, best = c;
    }
    return best;
  }
  void hear(const Choice& c, double cost) override {
    seen_.push_back({c, cost});
    tried_.insert(c);
  }

 private:
  static constexpr size_t kStart = 32, kFewest = 4, kMostGood = 25;
  static constexpr int kDraws = 24;
  struct Seen {
    Choice choice;
    double cost;
  };
  // How often each value stands among seen_[begin, end), with one more of each.
  std::vector<std::vector<double>> densities(size_t begin, size_t end) const {
    std::vector<std::vector<double>> d;
    for (size_t i = 0; i < space_.n_settings(); ++i) {
      std::vector<double> count(space_.n_values(i), 1.0 / static_cast<double>(space_.n_values(i)));
      for (size_t s = begin; s < end; ++s) count[seen_[s].choice[i]] += 1;
      for (double& x : count) x /= static_cast<double>(end - begin + 1);
      d.push_back(std::move(count));
    }
    return d;
  }
  std::vector<Seen> seen_;
  std::set<Choice> tried_;
};

void follow(Proposer& proposer, Space& space, int64_t n_trials, BaselineResult& result) {
  for (int64_t trial = 0; trial < n_trials; ++trial) {
    const Choice c = proposer.propose();
    proposer.hear(c, space.cost(c, result));
    result.best_so_far.push_back(result.found ? result.step_s : HUGE_VAL);
  }
}

}  // namespace

std::string_view baseline_name(Baseline b) {
  constexpr std::string_view kNames[] = {"random", "mcmc", "policy", "bayes"};
  return kNames[static_cast<int>(b)];
}

BaselineResult search_by(Baseline how, StepPricer& pricer, const ModelSpec& model,
                         const ClusterSpec& cluster, int64_t n_trials, uint64_t seed) {
  Space space(pricer, model, cluster);
  Draws draws(seed);
  BaselineResult result;
  Proposer random(space, draws);
  Mcmc mcmc(space, draws);
  Policy policy(space, draws);
  Bayes bayes(space, draws);
  Proposer* const proposers[] = {&random, &mcmc, &policy, &bayes};
  follow(*proposers[static_cast<int>(how)], space, n_trials, result);
  return result;
}

}  // namespace tegula::planner
