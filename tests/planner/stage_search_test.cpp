// Unequal stages against every way to cut layers and to hand out submeshes.
#include "tegula/planner/stage_search.h"

#include <gtest/gtest.h>

#include <random>

#include "tegula/planner/model_presets.h"
#include "tegula/planner/search.h"

namespace tegula::planner {
namespace {

// Every way, front to back; the stages behind are only known at the end, so whole ways are priced.
void all_ways(const StageCosts& c, std::vector<std::pair<int64_t, size_t>>& way, int64_t begin,
              int64_t devices, double& best) {
  if (begin == c.n_layers) {
    if (devices != 0) return;
    double sum = 0, slowest = 0;
    int64_t from = 0;
    for (size_t i = 0; i < way.size(); ++i) {
      const double t =
          c.at(from, way[i].first, way[i].second, static_cast<int64_t>(way.size() - i) - 1);
      sum += t, slowest = std::max(slowest, t), from = way[i].first;
    }
    best = std::min(best, sum + static_cast<double>(c.n_micro_batches - 1) * slowest);
    return;
  }
  for (int64_t end = begin + 1; end <= c.n_layers; ++end)
    for (size_t s = 0; s < c.submeshes.size(); ++s) {
      if (c.submeshes[s].size() > devices) continue;
      way.emplace_back(end, s);
      all_ways(c, way, end, devices - c.submeshes[s].size(), best);
      way.pop_back();
    }
}

double enumerated(const StageCosts& c) {
  std::vector<std::pair<int64_t, size_t>> way;
  double best = HUGE_VAL;
  all_ways(c, way, 0, c.n_devices, best);
  return best;
}

TEST(StageSearch, IsTheBestOfAllWaysOnSmallClusters) {
  std::mt19937 bits(3);
  std::uniform_real_distribution<double> u(0.5, 2);
  for (int i = 0; i < 150; ++i) {
    const int64_t layers = 2 + i % 5, devices = 2 + i % 7;
    std::vector<Submesh> submeshes = {{1, 1}, {1, 2}};
    if (devices >= 4) submeshes.push_back({1, 4});
    StageCosts c = stage_costs(layers, devices, 1 + i % 9, submeshes);
    for (int64_t b = 0; b < layers; ++b)
      for (int64_t e = b + 1; e <= layers; ++e)
        for (size_t s = 0; s < submeshes.size(); ++s)
          for (int64_t behind = 0; behind < layers; ++behind)
            if (bits() % 10 > 0)
              c.seconds[c.index(b, e, s, behind)] =
                  static_cast<double>(e - b) * u(bits) /
                  std::pow(static_cast<double>(submeshes[s].size()), 0.8);
    const double best = enumerated(c);
    const auto found = search_stages(c);
    if (best == HUGE_VAL) {
      EXPECT_FALSE(found.ok());
      continue;
    }
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_NEAR(found->step_s, best, 1e-9 * best) << i;
    // Its report is what it found.
    double sum = 0, slowest = 0;
    int64_t at = 0, used = 0;
    for (const PlacedStage& s : found->stages) {
      EXPECT_EQ(s.begin, at);
      at = s.end, used += s.submesh.size(), sum += s.seconds;
      slowest = std::max(slowest, s.seconds);
    }
    EXPECT_EQ(at, layers);
    EXPECT_EQ(used, devices);
    EXPECT_NEAR(sum + static_cast<double>(c.n_micro_batches - 1) * slowest, best, 1e-9 * best);
  }
}

TEST(StageSearch, OfAModelIsTheBestOfAllWaysToo) {
  ModelSpec m = find_model_preset("gpt2")->model;
  m.n_layers = 5;
  const ParamCount params = *count_params(m);
  ClusterSpec cluster = *parse_cluster("4xH100");
  Job job;
  job.seqlen = 1024, job.batch_tokens = 16 * 1024;
  for (const double gb : {80.0, 4.0, 2.5}) {
    cluster.device.memory_bytes = gb * 1e9;
    StepPricer pricer(m, params, cluster, job);
    for (const int64_t microbatch : {1, 2, 4}) {
      const auto costs = price_stages(pricer, m, params, cluster, job, microbatch);
      ASSERT_TRUE(costs.ok()) << costs.error().message;
      const double best = enumerated(*costs);
      const auto found = search_stages(*costs);
      ASSERT_EQ(found.ok(), best < HUGE_VAL) << gb << " GB";
      if (found.ok()) EXPECT_NEAR(found->step_s, best, 1e-9 * best);
    }
  }
}

TEST(StageSearch, SubmeshesArePartsOfNodesOrWholeOnes) {
  const auto all = submeshes_of(*parse_cluster("24xH100"));
  const std::vector<Submesh> want = {{1, 1}, {1, 2}, {1, 4}, {1, 8}, {2, 8}, {3, 8}};
  EXPECT_EQ(all, want);
  ModelSpec m = find_model_preset("gpt2")->model;
  m.n_layers = 200;
  const ClusterSpec c = *parse_cluster("4xH100");
  Job job;
  job.seqlen = 1024, job.batch_tokens = 4096;
  StepPricer pricer(m, *count_params(m), c, job);
  EXPECT_FALSE(price_stages(pricer, m, *count_params(m), c, job, 1).ok());
}

}  // namespace
}  // namespace tegula::planner
