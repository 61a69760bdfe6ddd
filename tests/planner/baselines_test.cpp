// Searches of others beside the enumeration, through the same prices.
#include "tegula/planner/baselines.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tegula/planner/model_presets.h"

namespace tegula::planner {
namespace {

struct Case {
  const char *model, *cluster;
  int64_t seqlen, sequences;
};

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

class BaselineCase : public ::testing::TestWithParam<Case> {};

TEST_P(BaselineCase, NeverBeatTheEnumerationAndLearn) {
  const Case& c = GetParam();
  const ModelSpec model = find_model_preset(c.model)->model;
  const ParamCount params = *count_params(model);
  const ClusterSpec cluster = *parse_cluster(c.cluster);
  Job job;
  job.seqlen = c.seqlen, job.batch_tokens = c.seqlen * c.sequences;
  const auto all = search_layouts(model, params, cluster, job, {});
  ASSERT_TRUE(all.ok() && !all->best.empty());
  const double best = all->fastest_s;
  std::vector<double> last[std::size(kBaselines)];
  for (const Baseline how : kBaselines)
    for (uint64_t seed = 0; seed < 9; ++seed) {
      StepPricer pricer(model, params, cluster, job);
      const BaselineResult r = search_by(how, pricer, model, cluster, 1500, seed);
      SCOPED_TRACE(cat(baseline_name(how), ", seed ", seed));
      ASSERT_EQ(r.best_so_far.size(), 1500U);
      EXPECT_TRUE(std::is_sorted(r.best_so_far.rbegin(), r.best_so_far.rend()));
      last[static_cast<int>(how)].push_back(r.best_so_far.back());
      if (!r.found) continue;
      EXPECT_GE(r.step_s, best * (1 - 1e-12));
      EXPECT_TRUE(check_layout(r.layout, model, cluster, job).ok());
      const StepPrice p = pricer.price(r.layout);
      EXPECT_EQ(p.step_s(), r.step_s);
      EXPECT_LE(p.peak_bytes(), usable_bytes(cluster, job, r.layout));
      // The same seed finds the same.
      if (seed == 0)
        EXPECT_EQ(search_by(how, pricer, model, cluster, 1500, seed).best_so_far, r.best_so_far);
    }
  // Searches that learn from trials do better with them than others, by the median of seeds.
  for (const Baseline how : {Baseline::kMcmc, Baseline::kBayes})
    EXPECT_LE(median(last[static_cast<int>(how)]), median(last[0])) << baseline_name(how);
}

INSTANTIATE_TEST_SUITE_P(Some, BaselineCase,
                         ::testing::Values(Case{"llama3-8b", "16xH100", 8192, 64},
                                           Case{"gpt3-13b", "64xA100", 2048, 512},
                                           Case{"mixtral-8x7b", "64xH100", 4096, 512}));

}  // namespace
}  // namespace tegula::planner
