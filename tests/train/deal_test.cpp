// Rows of tokens dealt out over cp: the step of one rank, and as much attention for each as for the
// others.
#include "tegula/train/deal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tegula/train/step.h"
#include "tests/train/on_ranks.h"

namespace tegula {
namespace {

int64_t attention_flops(const Plan& plan) {
  int64_t n = 0;
  for (const Step& s : plan.steps)
    if (s.op->name.starts_with("attention")) n += s.flops;
  return n;
}

// Tokens dealt out: the step of one rank, and as much to do for each as for the others.
TEST(Mesh, DealtTokensShareAttentionOut) {
  for (const char* model : {"llama", "gpt2", "gemma2"})
    for (const char* ring : {"zigzag", "striped", "contiguous"})
      for (const char* mesh : {"cp=4", "dp=2,cp=2"}) {
        SCOPED_TRACE(cat(model, " ", ring, " ", mesh));
        TrainConfig c = tiny(model, "fast");
        c.ring = ring;
        const Ran one = run_on(c, ""), many = run_on(c, mesh);
        ASSERT_EQ(many.losses.size(), kSteps);
        for (size_t i = 0; i < kSteps; ++i) {
          EXPECT_NEAR(many.losses[i], one.losses[i], 1e-5 * one.losses[i]);
          EXPECT_NEAR(many.norms[i], one.norms[i], 1e-4 * one.norms[i]);
        }
        EXPECT_LT(largest_difference(one, many), 2e-3);
      }
  for (const char* ring : {"zigzag", "striped", "contiguous"}) {
    TrainConfig c = tiny("llama", "fast");
    c.ring = ring, c.model.max_seqlen = 512, c.mesh = *mesh_from_text("cp=4");
    const StepFunctions f = *build_step_functions(c);
    const auto ranks = *compile_for_ranks(c, f, f.train_step, Target::this_cpu(1));
    std::vector<int64_t> all, of_attention;
    for (const auto& plan : ranks.plans)
      all.push_back(plan->flops()), of_attention.push_back(attention_flops(*plan));
    const auto ratio = [](const std::vector<int64_t>& v) {
      return static_cast<double>(std::ranges::max(v)) / static_cast<double>(std::ranges::min(v));
    };
    if (c.ring == "contiguous") {
      EXPECT_GT(ratio(of_attention), 4);
    } else {
      EXPECT_LT(ratio(of_attention), 1.1) << ring;
      EXPECT_LT(ratio(all), 1.1) << ring;
    }
  }
}

TEST(Mesh, SaysWhyTokensAreNotDealt) {
  TrainConfig c = tiny("llama", "fast");
  c.mesh = *mesh_from_text("cp=4");
  using Ints = std::vector<int64_t>;
  EXPECT_EQ(dealt_order(c),
            (Ints{0, 1, 2, 14, 1, 2, 2, 1, 2, 12, 1, 2, 4, 1, 2, 10, 1, 2, 6, 1, 2, 8, 1, 2}));
  c.ring = "striped";
  EXPECT_EQ(dealt_order(c), (Ints{0, 4, 4, 1, 4, 4, 2, 4, 4, 3, 4, 4}));
  EXPECT_EQ(why_not_dealt(c), "");
  const auto why = [&](auto&& change) {
    TrainConfig other = c;
    change(other);
    EXPECT_TRUE(dealt_order(other).empty());
    return why_not_dealt(other);
  };
  EXPECT_EQ(why([](TrainConfig& o) { o.mesh = {}; }), "");
  EXPECT_EQ(why([](TrainConfig& o) { o.ring = "contiguous"; }), "");
  EXPECT_NE(why([](TrainConfig& o) { o.mode = "exact"; }).find("exact"), std::string::npos);
  EXPECT_NE(why([](TrainConfig& o) { o.model.dropout = 0.1; }).find("dropout"), std::string::npos);
  EXPECT_NE(why([](TrainConfig& o) { o.model.type = "moe"; }).find("experts"), std::string::npos);
  EXPECT_NE(why([](TrainConfig& o) { o.model.type = "lstm"; }).find("state"), std::string::npos);
  EXPECT_NE(why([](TrainConfig& o) { o.ring = "zigzag", o.model.max_seqlen = 12; }).find("8 equal"),
            std::string::npos);
}

}  // namespace
}  // namespace tegula
