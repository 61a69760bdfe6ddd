#include "tegula/base/algorithm.h"
#include "tegula/planner/baselines.h"
#include "tegula/planner/print.h"
#include "tegula/planner/report.h"

namespace tegula::planner {

namespace {

constexpr uint64_t kSeeds = 9;

struct Found {
  double step_s = 0;
  int64_t after = 0;  // trials
};

}  // namespace

std::string compare_searches(const Answer& a, int64_t n_trials) {
  const double best = a.found.fastest_s;
  std::string out;
  print(out,
        "\nother searches of the same prices, %lld trials, median of %d seeds; all %s layouts: "
        "%.4g s\n",
        static_cast<long long>(n_trials), static_cast<int>(kSeeds),
        grouped(a.found.n_layouts).c_str(), best);
  StepPricer pricer(a.preset.model, a.params, *a.cluster, a.job);
  for (const Baseline how : kBaselines) {
    std::vector<Found> found;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      const BaselineResult r = search_by(how, pricer, a.preset.model, *a.cluster, n_trials, seed);
      if (!r.found) continue;
      const auto at = std::find(r.best_so_far.begin(), r.best_so_far.end(), r.step_s);
      found.push_back({r.step_s, at - r.best_so_far.begin() + 1});
    }
    const std::string name(baseline_name(how));
    if (found.size() <= kSeeds / 2) {
      print(out, "  %-8s nothing that fits, from most seeds\n", name.c_str());
      continue;
    }
    std::sort(found.begin(), found.end(),
              [](const Found& x, const Found& y) { return x.step_s < y.step_s; });
    // Seeds that found nothing stand behind all others.
    const Found& middle = found[std::min<size_t>(kSeeds / 2, found.size() - 1)];
    print(out, "  %-8s %.4g s, %s slower, after %lld trials\n", name.c_str(), middle.step_s,
          percent(middle.step_s / best - 1).c_str(), static_cast<long long>(middle.after));
  }
  return out;
}

}  // namespace tegula::planner
