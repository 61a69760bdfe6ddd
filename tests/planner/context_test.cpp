// How context parallelism cuts a sequence: what attention of the slowest rank takes, and what goes
// between ranks, from formulas written down here.
#include <gtest/gtest.h>

#include <cmath>

#include "tegula/planner/model_presets.h"
#include "tegula/planner/search.h"
#include "tegula/planner/step_price.h"

namespace tegula::planner {
namespace {

struct Case {
  ModelSpec model = find_model_preset("llama3-8b")->model;
  ClusterSpec cluster = *parse_cluster("8xH100");
  Job job;
  Case() { job.seqlen = 32768, job.batch_tokens = job.seqlen * 8; }
  StepPricer pricer() const { return {model, *count_params(model), cluster, job}; }
  static Layout layout(ContextCut context, int64_t cp) {
    Layout l;
    l.cp = cp, l.dp = 8 / cp, l.context = context;
    return l;
  }
};

TEST(Context, AContiguousRingsLastRankSeesMost) {
  const Case c;
  StepPricer pricer = c.pricer();
  const auto attention_flops = [&](ContextCut context, int64_t cp) {
    const RankShape s = rank_shape(Case::layout(context, cp), c.model, c.job);
    for (const Work& w : layer_work(c.model, s).forward)
      if (w.name == "attention") return w.flops;
    return 0.0;
  };
  for (const int64_t cp : {2, 4, 8}) {
    // The last of cp pieces has (s/cp)·(s − s/cp / 2) of the s² / 2 scores, the average s² / 2cp.
    const double most = static_cast<double>(2 * cp - 1) / static_cast<double>(cp);
    const double even = attention_flops(ContextCut::kZigzag, cp);
    EXPECT_NEAR(attention_flops(ContextCut::kContiguous, cp) / even, most, 1e-12);
    EXPECT_EQ(attention_flops(ContextCut::kStriped, cp), even);
    EXPECT_EQ(attention_flops(ContextCut::kUlysses, cp), even);
    EXPECT_GT(pricer.price(Case::layout(ContextCut::kContiguous, cp)).step_s(),
              pricer.price(Case::layout(ContextCut::kZigzag, cp)).step_s());
    EXPECT_EQ(pricer.price(Case::layout(ContextCut::kStriped, cp)).step_s(),
              pricer.price(Case::layout(ContextCut::kZigzag, cp)).step_s());
  }
}

// Jacobs et al. 2023, section 3.2: with as many key/value heads as heads 3·N·h/P there and N·h/P
// back, whatever P is. With fewer, copies of them where there are more ranks than heads.
TEST(Context, UlyssesSendsQueriesKeysValuesThereAndResultsBack) {
  Case c;
  for (const int64_t kv_heads : {32, 8, 4})
    for (const int64_t cp : {2, 8}) {
      c.model.n_kv_heads = kv_heads;
      StepPricer pricer = c.pricer();
      const LayerPrice& p = pricer.layer(Case::layout(ContextCut::kUlysses, cp));
      const int64_t tokens = c.job.seqlen / cp;
      const double head = 2.0 * static_cast<double>(tokens) * 128;
      const auto copies = static_cast<double>(std::max<int64_t>(kv_heads, cp));
      const RankSpan group{cp, 1};
      const double there = pricer.comm(Collective::kAllToAll, head * (32 + 2 * copies), group),
                   back = pricer.comm(Collective::kAllToAll, head * 32, group);
      EXPECT_NEAR(p.cp_forward, there + back, 1e-12);
      EXPECT_EQ(p.cp_forward, p.cp_backward);
    }
  // A ring hides behind attention, where that is long; all-to-alls do not.
  c.model.n_kv_heads = 8;
  StepPricer pricer = c.pricer();
  EXPECT_EQ(pricer.layer(Case::layout(ContextCut::kZigzag, 8)).cp_forward, 0);
  EXPECT_GT(pricer.layer(Case::layout(ContextCut::kUlysses, 8)).cp_forward, 0);
}

// Short pieces between nodes: a ring's hops show, and heads by all-to-all are what search takes.
TEST(Context, SearchTakesWhatIsFaster) {
  Case c;
  c.cluster = *parse_cluster("64xH100");
  c.job.seqlen = 16384, c.job.batch_tokens = c.job.seqlen * 8;
  Pins pins;
  pins.cp = 8, pins.tp = 1, pins.pp = 1;
  const auto free = search_layouts(c.model, *count_params(c.model), c.cluster, c.job, pins);
  ASSERT_TRUE(free.ok() && !free->best.empty());
  double best = HUGE_VAL;
  for (const ContextCut context : kContexts) {
    pins.context = context;
    const auto fixed = search_layouts(c.model, *count_params(c.model), c.cluster, c.job, pins);
    ASSERT_TRUE(fixed.ok() && !fixed->best.empty());
    EXPECT_EQ(fixed->best[0].layout.context, context);
    best = std::min(best, fixed->best[0].step_s());
  }
  EXPECT_EQ(free->best[0].step_s(), best);
}

TEST(Context, RefusesWhatDoesNotDivide) {
  Case c;
  c.job.seqlen = 1000;
  const auto says = [&](ContextCut context, int64_t cp, const char* words) {
    const Status s = check_context(Case::layout(context, cp), c.model, c.job);
    ASSERT_FALSE(s.ok());
    EXPECT_NE(s.error().message.find(words), std::string::npos) << s.error().message;
  };
  says(ContextCut::kZigzag, 8, "2 · cp 16");
  EXPECT_TRUE(check_context(Case::layout(ContextCut::kStriped, 8), c.model, c.job).ok());
  says(ContextCut::kContiguous, 3, "cp 3");
  Layout l = Case::layout(ContextCut::kUlysses, 8);
  l.tp = 8;
  EXPECT_NE(check_context(l, c.model, c.job).error().message.find("tp · cp 64"), std::string::npos);
}

}  // namespace
}  // namespace tegula::planner
