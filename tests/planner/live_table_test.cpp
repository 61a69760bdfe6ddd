// The search and layers' plans: which of them it asks for, and what becomes of its layouts.
#include "tegula/planner/live_table.h"

#include <gtest/gtest.h>

#include <set>

#include "tegula/planner/answer.h"

namespace tegula::planner {
namespace {

// A layer that keeps so many bytes for each sequence and needs as many more while it works.
class FakePlans : public LivePlans {
 public:
  explicit FakePlans(double bytes) : bytes_(bytes) {}
  std::optional<LayerLive> of(const ModelSpec&, const Job&, const Layout& l) override {
    EXPECT_TRUE(asked.insert({l.tp, l.cp, l.microbatch}).second) << "asked twice";
    if (l.cp > 1) return {};
    LayerLive live;
    live.kept = bytes_ * static_cast<double>(l.microbatch) / static_cast<double>(l.tp);
    live.boundary = live.kept / 16;
    for (auto& by_last : live.steps)
      for (auto& steps : by_last) steps = {{live.kept, live.kept}};
    return live;
  }
  std::set<std::tuple<int64_t, int64_t, int64_t>> asked;

 private:
  double bytes_;
};

Question question(LivePlans& plans) {
  Question q;
  q.model = "llama3-8b", q.gpus = "16xA100", q.batch_tokens = 1 << 20, q.fix = "ep=1,sp=false";
  q.built = true, q.plans = &plans;
  return q;
}

TEST(LiveTable, BytesOfBestLayoutsAreThoseOfTheirPlans) {
  FakePlans plans(2e8);
  const auto a = answer(question(plans));
  ASSERT_TRUE(a.ok()) << a.error().message;
  ASSERT_FALSE(a->found.best.empty());
  EXPECT_FALSE(plans.asked.empty());
  int n = 0;
  for (const StepPrice& p : a->found.best) {
    const Layout& l = p.layout;
    EXPECT_TRUE(a->job.live->has_asked(l));
    const LayerLive* live = a->job.live->find(l);
    EXPECT_EQ(live == nullptr, l.cp > 1);
    if (!live || l.pp > 1 || (l.remat != Remat::kNone && l.remat != Remat::kFull)) continue;
    ++n;
    const double each = l.remat == Remat::kFull ? live->boundary : live->kept;
    EXPECT_NEAR(p.memory.activations / (32 * each), 1, 1e-12);
    double rest = live->kept + (live->kept - each);  // what works, and what is computed again
    if (l.zero == 3) rest += 2 * 2 * 218112000.0 / static_cast<double>(l.tp);
    if (l.tp == 1) EXPECT_NEAR(p.memory.temporaries / rest, 1, 1e-3);
  }
  EXPECT_GT(n, 0);
}

TEST(LiveTable, WhatDoesNotFitByItsPlansIsNotAmongTheBest) {
  FakePlans small(1e6), large(1e12);
  const auto fits = answer(question(small)), not_so = answer(question(large));
  ASSERT_TRUE(fits.ok() && not_so.ok());
  for (const StepPrice& p : not_so->found.best) {
    EXPECT_LE(p.peak_bytes(), usable_bytes(*fits->cluster, fits->job, p.layout, not_so->found.fit));
    if (not_so->job.live->has_asked(p.layout)) {
      EXPECT_EQ(not_so->job.live->find(p.layout), nullptr);
    }
  }
  ASSERT_FALSE(fits->found.best.empty());
  if (!not_so->found.best.empty()) {
    EXPECT_GE(not_so->found.best[0].step_s(), fits->found.best[0].step_s());
  }
}

TEST(LiveTable, LayoutsThatWereFoundArePricedByWhatIsKnown) {
  for (const double bytes : {1e6, 1e8, 2e8, 8e8, 3.2e9, 1e12}) {
    FakePlans plans(bytes);
    Question q = question(plans);
    q.gpus = "64xA100", q.fix = "cp=1,zero=3,remat=none";
    const auto a = answer(q);
    ASSERT_TRUE(a.ok()) << a.error().message;
    StepPricer again(a->preset.model, a->params, *a->cluster, a->job);
    for (const StepPrice& p : a->found.best)
      EXPECT_EQ(again.price(p.layout).peak_bytes(), p.peak_bytes())
          << bytes << ": " << to_string(p.layout);
  }
}

TEST(LiveTable, OthersAreComparedByTheSamePlans) {
  FakePlans plans(2e8);
  Question q = question(plans);
  q.compare = "A100,H100";
  const auto a = answer(q);
  ASSERT_TRUE(a.ok()) << a.error().message;
  ASSERT_TRUE(a->compared[0].train && a->compared[1].train);
  EXPECT_EQ(a->compared[0].train->layout, a->found.best[0].layout);
  EXPECT_EQ(a->compared[0].train->peak_bytes(), a->found.best[0].peak_bytes());
}

TEST(LiveTable, ByTheBookNobodyIsAsked) {
  FakePlans plans(1e8);
  Question q = question(plans);
  q.built = false;
  ASSERT_TRUE(answer(q).ok());
  EXPECT_TRUE(plans.asked.empty());
  q.prefers_built = true, q.model = "gpt3-13b";  // trained with dropout
  ASSERT_TRUE(answer(q).ok());
  EXPECT_TRUE(plans.asked.empty());
}

}  // namespace
}  // namespace tegula::planner
