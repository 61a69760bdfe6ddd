// The search beside plain enumeration of everything, with loops of its own over a larger space;
// what it says of layouts that lost; how long it takes.
#include "tegula/planner/search.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <map>
#include <set>

#include "tegula/planner/answer.h"
#include "tegula/planner/model_presets.h"

namespace tegula::planner {
namespace {

struct Case {
  const char *model, *cluster;
  int64_t seqlen, sequences;
  int layers = 0;  // 0: the model's own
};

ModelSpec model_of(const Case& c) {
  ModelSpec m = find_model_preset(c.model)->model;
  if (c.layers > 0) m.n_layers = c.layers;
  return m;
}

Job job_of(const Case& c) {
  Job j;
  j.seqlen = c.seqlen, j.batch_tokens = c.seqlen * c.sequences;
  return j;
}

// Any number of chunks; slices that other schedules than TeraPipe cannot have anyway.
std::vector<std::pair<int64_t, int64_t>> chunks_and_slices(const ModelSpec& m, Turns turns) {
  std::vector<std::pair<int64_t, int64_t>> all;
  for (int64_t v = 1; v <= m.n_layers; ++v) all.emplace_back(v, 1);
  for (int64_t n = 2; n <= 40 && turns == Turns::kTeraPipe; ++n) all.emplace_back(1, n);
  return all;
}

// Every tuple of numbers, also those that the search leaves out: any micro-batch, any interleaving.
// check_layout alone says what can be.
template <class F>
void enumerate(const Case& c, const ModelSpec& m, const ClusterSpec& cluster, const Job& job,
               F&& visit) {
  const int64_t n = cluster.n_devices;
  Layout l;
  for (l.dp = 1; l.dp <= n; ++l.dp)
    for (l.tp = 1; l.dp * l.tp <= n; ++l.tp)
      for (l.pp = 1; l.dp * l.tp * l.pp <= n; ++l.pp)
        for (l.cp = 1; l.devices() <= n; ++l.cp) {
          if (l.devices() != n) continue;
          for (const ContextCut context : kContexts)
            for (l.ep = 1; l.ep <= m.n_experts; ++l.ep)
              for (l.zero = 0; l.zero <= 3; ++l.zero)
                for (const bool sp : {false, true})
                  for (const Turns turns : kTurns)
                    for (const auto& [interleave, slices] : chunks_and_slices(m, turns))
                      for (l.microbatch = 1; l.microbatch <= c.sequences; ++l.microbatch)
                        for (const Remat remat : kRemats) {
                          l.sp = sp, l.turns = turns, l.remat = remat, l.context = context;
                          l.interleave = interleave, l.slices = slices;
                          if (check_layout(l, m, cluster, job).ok()) visit(l);
                        }
        }
}

class SearchCase : public ::testing::TestWithParam<Case> {};

TEST_P(SearchCase, IsWithinAHundredthOfEnumeration) {
  const Case& c = GetParam();
  const ModelSpec m = model_of(c);
  const ParamCount params = *count_params(m);
  const ClusterSpec cluster = *parse_cluster(c.cluster);
  const Job job = job_of(c);
  StepPricer pricer(m, params, cluster, job);
  double best = HUGE_VAL, smallest = HUGE_VAL;
  int64_t n = 0, n_fit = 0, n_may_fit = 0;
  enumerate(c, m, cluster, job, [&](const Layout& l) {
    const StepPrice p = pricer.price(l);
    ++n;
    smallest = std::min(smallest, p.peak_bytes());
    n_may_fit += p.peak_bytes() <= usable_bytes(cluster, job, l, Fit::kMayNotFit);
    if (p.peak_bytes() > usable_bytes(cluster, job, l)) return;
    ++n_fit;
    best = std::min(best, p.step_s());
  });
  const auto found = search_layouts(m, params, cluster, job, {});
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_LE(found->n_layouts, n);
  EXPECT_LE(found->n_fit, n_fit);
  ASSERT_EQ(found->best.empty(), n_may_fit == 0);
  EXPECT_EQ(found->fit == Fit::kFits, n_fit > 0 || n_may_fit == 0);
  EXPECT_NEAR(found->smallest->peak_bytes(), smallest, 0.01 * smallest);
  if (n_fit > 0) EXPECT_LE(found->best[0].step_s(), 1.01 * best);
  for (const StepPrice& p : found->best) {
    EXPECT_TRUE(check_layout(p.layout, m, cluster, job).ok()) << to_string(p.layout);
    EXPECT_LE(p.peak_bytes(), usable_bytes(cluster, job, p.layout, found->fit));
    EXPECT_EQ(pricer.price(p.layout).step_s(), p.step_s()) << "remembered prices are others";
  }
}

INSTANTIATE_TEST_SUITE_P(Small, SearchCase,
                         ::testing::Values(Case{"gpt2", "4xA100", 1024, 16},
                                           Case{"gpt2-xl", "8xA100", 1024, 24, 8},
                                           Case{"llama3-8b", "8xH100", 8192, 16, 6},
                                           Case{"llama3-8b", "12xH100", 4096, 12, 6},
                                           Case{"llama3-8b", "6xL4", 2048, 6, 4},
                                           Case{"mixtral-8x7b", "8xH100", 4096, 8, 4},
                                           Case{"llama2-70b", "8xA100-40GB", 4096, 8, 8},
                                           Case{"lstm-large", "4xA100", 35, 20},
                                           Case{"mlp", "4xV100", 1024, 8},
                                           Case{"llama3-70b", "2xL4", 4096, 4, 8}));

// The stages that are looked at for memory are the fullest of all.
TEST(Search, NoStageIsFullerThanTheOnePrinted) {
  const Case c{"llama3-8b", "16xH100", 4096, 32};
  const ClusterSpec cluster = *parse_cluster(c.cluster);
  const Job job = job_of(c);
  std::map<Turns, int> compared;
  for (const int64_t n_layers : {32, 35, 41, 46}) {
    ModelSpec m = model_of(c);
    m.n_layers = n_layers;
    const ParamCount params = *count_params(m);
    StepPricer pricer(m, params, cluster, job);
    for (const int64_t pp : {1, 2, 4, 8, 16})
      for (const Turns turns : kTurns)
        for (const int zero : {0, 1, 3}) {
          Layout l;
          l.pp = pp, l.dp = 16 / pp, l.turns = turns, l.zero = zero;
          l.interleave = turns == Turns::kInterleaved ? 2 : 1;
          l.slices = turns == Turns::kTeraPipe ? 2 : 1;
          if (!check_layout(l, m, cluster, job).ok()) continue;
          ++compared[turns];
          const StepPrice p = pricer.price(l);
          double most = 0;
          for (int64_t stage = 0; stage < pp; ++stage)
            most = std::max(
                most, stage_memory(m, l, job, rank_params(m, params, l),
                                   pricer.layer(l).activations, stage, stages_of(m, job, l, stage))
                          .total());
          EXPECT_DOUBLE_EQ(p.peak_bytes(), most) << to_string(l) << " of " << n_layers;
        }
  }
  EXPECT_EQ(compared.size(), std::size(kTurns));
}

TEST(Search, ReasonsNameWhatWouldBeFasterAndWhatWasSlower) {
  const Case c{"llama3-70b", "64xH100", 8192, 128};
  const ModelSpec m = model_of(c);
  const auto found = search_layouts(m, *count_params(m), *parse_cluster(c.cluster), job_of(c), {});
  ASSERT_TRUE(found.ok());
  bool any_large = false, any_slow = false;
  for (const Rejected& r : found->rejected) {
    (r.fit == Fit::kFits ? any_slow : any_large) = true;
    EXPECT_EQ(
        r.fit,
        reserve_of(*parse_cluster(c.cluster), job_of(c), r.price.layout, r.price.peak_bytes()).fit);
    if (r.fit == Fit::kFits)
      EXPECT_GE(r.price.step_s(), found->best[0].step_s());
    else
      EXPECT_LT(r.price.step_s(), found->best[0].step_s());
  }
  EXPECT_TRUE(any_large && any_slow);
}

TEST(Search, LargeClustersTakeSeconds) {
  for (const auto& [gpus, most] : {std::pair{"16384xH100", 10.0}, std::pair{"1024xH100", 5.0}}) {
    Question q;
    q.model = "llama3-405b", q.gpus = gpus;
    const auto start = std::chrono::steady_clock::now();
    const auto a = answer(q);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    ASSERT_TRUE(a.ok());
    EXPECT_TRUE(a->fits());
    EXPECT_LT(took.count(), most) << gpus;
  }
}

TEST(Search, AbsurdSizesEnd) {
  Question q;
  q.model = "gpt2", q.gpus = "1048576xH100", q.batch_tokens = int64_t{1} << 50;
  const auto a = answer(q);
  ASSERT_TRUE(a.ok()) << a.error().message;
  for (const StepPrice& p : a->found.best) EXPECT_TRUE(std::isfinite(p.step_s()));
}

}  // namespace
}  // namespace tegula::planner
