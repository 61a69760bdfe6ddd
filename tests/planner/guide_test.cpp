// The decision guide at every branch, and explanations that add up to what they explain.
#include "tegula/planner/guide.h"

#include <gtest/gtest.h>

#include "tegula/planner/explain.h"

namespace tegula::planner {
namespace {

Guide walk(const char* model, const char* gpus, double tokens, double days) {
  Question q;
  q.model = model, q.gpus = gpus, q.tokens_total = tokens;
  const auto a = answer(q);
  EXPECT_TRUE(a.ok()) << a.error().message;
  return guide(*a, 86400 * days);
}

std::string numbers_of(const Guide& g) {
  std::string text;
  for (const GuideStep& s : g.steps) text += cat(s.number, s.is_yes ? "y" : "n");
  return text;
}

TEST(Guide, OneDeviceIsEnough) {
  const Guide g = walk("gpt2", "8xA100", 1e10, 10);
  EXPECT_EQ(numbers_of(g), "1y2y");
  EXPECT_EQ(g.n_devices, 1);
  EXPECT_EQ(g.chosen->layout.devices(), 1);
}

TEST(Guide, DataParallelismUntilItIsInTime) {
  const Guide g = walk("gpt2", "64xA100", 1e11, 1);
  EXPECT_EQ(numbers_of(g), "1y2n2y");
  EXPECT_GT(g.n_devices, 1);
  EXPECT_LT(g.n_devices, 64);
  EXPECT_EQ(g.chosen->layout.dp, g.n_devices);
  // Half of them would be late.
  Question q;
  q.model = "gpt2", q.gpus = cat(g.n_devices / 2, "xA100"), q.tokens_total = 1e11;
  q.fix = "tp=1,pp=1,cp=1";
  const auto fewer = answer(q);
  ASSERT_TRUE(fewer.ok());
  EXPECT_GT(1e11 / static_cast<double>(fewer->job.batch_tokens) * fewer->found.best[0].step_s(),
            86400);
}

TEST(Guide, RecomputationMakesItFit) {
  // 16 bytes of 2.65 billion are 42 GB; all activations of a sequence do not go beside them.
  const Guide g = walk("gpt3-2.7b", "8xA100-40GB", 1e9, 1e5);
  EXPECT_EQ(numbers_of(g).substr(0, 4), "1n3n");
  const Guide h = walk("gpt3-760m", "8xT4", 1e9, 1e5);
  EXPECT_EQ(numbers_of(h), "1n3y2y");
  EXPECT_NE(h.chosen->layout.remat, Remat::kNone);
}

TEST(Guide, ThenOperatorsAreCut) {
  const Guide g = walk("llama3-70b", "64xH100", 0, 0);
  EXPECT_EQ(numbers_of(g), "1n3n4y5y");
  EXPECT_EQ(g.n_devices, 64);
  EXPECT_EQ(numbers_of(walk("llama3-8b", "64xH100", 0, 0)), "1n3n4y5y");
  // Over PCIe a narrower model's collectives take longer than its work: stages, not operators.
  const Guide slow = walk("llama3-8b", "64xH100-PCIe", 0, 0);
  EXPECT_NE(numbers_of(slow).find("4n"), std::string::npos);
}

TEST(Guide, NothingFitsIsSaid) {
  const Guide g = walk("llama3-405b", "8xH100", 0, 0);
  EXPECT_EQ(numbers_of(g).substr(0, 4), "1n3n");
  EXPECT_FALSE(g.chosen.has_value());
  EXPECT_NE(to_text(g).find("more devices"), std::string::npos);
}

TEST(Explain, EveryOpOfALayer) {
  Question q;
  q.model = "mixtral-8x7b", q.gpus = "64xH100";
  const auto a = answer(q);
  ASSERT_TRUE(a.ok());
  const RankShape s = rank_shape(a->found.best[0].layout, a->preset.model, a->job);
  for (const Work& w : layer_work(a->preset.model, s).forward) {
    const auto text = explain(*a, w.name);
    ASSERT_TRUE(text.ok()) << w.name;
    EXPECT_NE(text->find("bound by"), std::string::npos);
  }
  for (const char* what : {"step", "memory", "params", "ring", "head", "embedding"})
    EXPECT_TRUE(explain(*a, what).ok()) << what;
  const auto none = explain(*a, "atention");
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message.find("attention"), std::string::npos);
}

}  // namespace
}  // namespace tegula::planner
